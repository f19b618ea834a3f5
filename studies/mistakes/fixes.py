"""What a printed fix does to the program: launches, overlap, memory, and the verdict."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final, Literal, TypeGuard

from studies.mistakes.playing import subject_from
from syncverify.judge.properties import check
from syncverify.playing.sim import SimBackend
from syncverify.scenario.settings import DEFAULT_RANKS
from syncverify.search.drawing import Drawing
from syncverify.search.found_violation import Fix
from syncverify.trace.records import (
    Access,
    CollectiveLaunch,
    CollectiveWait,
    TraceRecord,
)
from syncverify.trace.run import Run
from syncverify.trace.source_lines import NoLine

Verdict = Literal[
    "ok", "adds a launch", "loses overlap", "adds memory", "still wrong", "no program"
]
NUM_SCENARIOS: Final = 60
_SEED: Final = 1


@dataclass(frozen=True, slots=True)
class Cost:
    """What one scenario costs, over all ranks.

    Attributes:
        launches: Number of collectives.
        early: Number of collectives that start while backward runs.
        early_waits: Number of waits for collectives while backward runs.
        num_bytes: Bytes of the storages that the subject writes, up to the last byte written.
    """

    launches: int
    early: int
    early_waits: int
    num_bytes: int


@dataclass(frozen=True, slots=True)
class Played:
    """The scenarios of the comparison, played with one source.

    Attributes:
        costs: Cost of each scenario.
        is_right: Whether each scenario holds all properties.
    """

    costs: tuple[Cost, ...]
    is_right: bool


def applied(source: str, fix: Fix) -> str:
    """Return a source with a fix, as a reader of the report would apply it.

    Raises:
        ValueError: The lines that the fix shows are not at its place.
    """
    lines = source.splitlines()
    at = fix.place.number - 1
    old = fix.old
    shown = next(line for line in old if line.strip())
    original = next(line for line in lines[at : at + len(old)] if line.strip())
    indent = " " * (len(original) - len(original.lstrip()) - _indent(shown))
    if [line.strip() for line in lines[at : at + len(old)]] != [
        line.strip() for line in old
    ]:
        raise ValueError(f"{fix.place} is not the line {old[0]!r}")
    new = [indent + line for line in fix.new]
    return "\n".join([*lines[:at], *new, *lines[at + len(old) :], ""])


def _indent(line: str) -> int:
    return len(line) - len(line.lstrip())


def compared(right: Played, fixed: Played) -> Verdict:
    """Compare a fixed program with the right one, scenario by scenario."""
    pairs = [*zip(right.costs, fixed.costs, strict=True)]
    if not fixed.is_right:
        return "still wrong"
    if any(after.launches > before.launches for before, after in pairs):
        return "adds a launch"
    if any(
        after.early < before.early or after.early_waits > before.early_waits
        for before, after in pairs
    ):
        return "loses overlap"
    if any(after.num_bytes > before.num_bytes for before, after in pairs):
        return "adds memory"
    return "ok"


def played(base: str, source: str) -> Played:
    """Play the scenarios of the comparison, on up to 4 ranks."""
    backend = SimBackend()
    with subject_from(base, source) as subject:
        drawing = Drawing(subject.capabilities, DEFAULT_RANKS, NUM_SCENARIOS, _SEED)
        runs = [(each, backend.run(each, subject)) for each in drawing.drawn()]
        is_right = not any(
            check(scenario, run, subject.capabilities) for scenario, run in runs
        )
    return Played(tuple(_cost(run) for _, run in runs), is_right)


def _cost(run: Run) -> Cost:
    records = [record for rank_run in run.ranks for record in rank_run.trace]
    launches = [each for each in records if isinstance(each, CollectiveLaunch)]
    waits = [each for each in records if isinstance(each, CollectiveWait)]
    return Cost(
        len(launches),
        sum(each.moment.phase == "backward" for each in launches),
        sum(each.moment.phase == "backward" for each in waits),
        sum(_bytes_of(rank_run.trace) for rank_run in run.ranks),
    )


def _bytes_of(trace: Sequence[TraceRecord]) -> int:
    """Return the bytes of the storages that the subject of a rank writes."""
    ends: dict[int, int] = {}
    for record in trace:
        if isinstance(record, CollectiveLaunch) or _is_own(record):
            for region in record.writes:
                end = max(region.end_byte, ends.get(region.storage, 0))
                ends[region.storage] = end
    return sum(ends.values())


def _is_own(record: TraceRecord) -> TypeGuard[Access]:
    return isinstance(record, Access) and record.source not in (
        NoLine.AUTOGRAD,
        NoLine.OPTIMIZER,
    )
