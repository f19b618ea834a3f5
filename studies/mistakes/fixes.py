"""What a printed fix does to the program: launches, overlap, memory, and the verdict."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Final, Literal, TypeGuard

from mistakes.playing import subject_from
from syncverify.backends.sim import SimBackend
from syncverify.judge.properties import check
from syncverify.scenario.scenario import Scenario
from syncverify.scenario.schedule import Schedule
from syncverify.search.drawing import Drawing
from syncverify.sim.turns.decisions import Decisions, Following
from syncverify.subjects.subject import Subject
from syncverify.trace.records import (
    AUTOGRAD,
    OPTIMIZER,
    Access,
    CollectiveLaunch,
    TraceRecord,
)
from syncverify.trace.run import Run
from syncverify.witness.fix import Fix

Verdict = Literal[
    "ok", "adds a launch", "loses overlap", "adds memory", "still wrong", "no program"
]
_RANKS: Final = (2, 4)
_NUM_DRAWN, _SEED, _NUM_OF_EACH = 40, 1, 6


@dataclass(frozen=True, slots=True)
class Cost:
    """What one scenario costs, over all ranks.

    Attributes:
        launches: Number of collectives.
        early: Number of collectives that start while backward runs.
        num_bytes: Bytes of all storages that the subject writes.
    """

    launches: int
    early: int
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
    at = int(fix.place.partition(" in ")[0].rpartition(":")[2]) - 1
    old = [line[2:] for line in fix.lines if not line.startswith("+ ")]
    shown = next(line for line in old if line.strip())
    original = next(line for line in lines[at : at + len(old)] if line.strip())
    indent = " " * (len(original) - len(original.lstrip()) - _indent(shown))
    if [line.strip() for line in lines[at : at + len(old)]] != [
        line.strip() for line in old
    ]:
        raise ValueError(f"{fix.place} is another line than {old[0]!r}")
    new = [indent + line[2:] for line in fix.lines if not line.startswith("- ")]
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
    if any(after.early < before.early for before, after in pairs):
        return "loses overlap"
    if any(after.num_bytes > before.num_bytes for before, after in pairs):
        return "adds memory"
    return "ok"


def played(base: str, source: str) -> Played:
    """Play the scenarios of the comparison: on 2 and on 4 ranks."""
    backend = SimBackend()
    with subject_from(base, source) as subject:
        runs = [
            (scenario, _run(backend, subject, scenario))
            for scenario in _scenarios(subject)
        ]
        is_right = not any(
            check(scenario, run, subject.capabilities) for scenario, run in runs
        )
    return Played(tuple(_cost(run) for _, run in runs), is_right)


def _scenarios(subject: Subject) -> Iterator[Scenario]:
    drawn = Drawing(subject.capabilities, max(_RANKS), _NUM_DRAWN, _SEED).drawn()
    listed: Sequence[Scenario] = [*drawn]
    for num_ranks in _RANKS:
        own = [each for each in listed if each.mesh.num_ranks == num_ranks]
        yield from own[:_NUM_OF_EACH]


def _run(backend: SimBackend, subject: Subject, scenario: Scenario) -> Run:
    decisions = Decisions(Following(Schedule()))
    return backend.run_scheduled(scenario, subject, decisions)


def _cost(run: Run) -> Cost:
    launches = [
        record
        for rank_run in run.ranks
        for record in rank_run.trace
        if isinstance(record, CollectiveLaunch)
    ]
    early = sum(each.moment.phase == "backward" for each in launches)
    num_bytes = sum(_bytes_of(rank_run.trace) for rank_run in run.ranks)
    return Cost(len(launches), early, num_bytes)


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
    return isinstance(record, Access) and record.source not in {AUTOGRAD, OPTIMIZER}
