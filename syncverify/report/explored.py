"""Lines of a report about its runs: replays, schedules, overlap, held memory, remarks."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Final

from syncverify.judge.ordering.held_memory import HeldMemory
from syncverify.plain_text import counted, first_of
from syncverify.scenario.contract import Capabilities
from syncverify.scenario.feature_table import TABLE_VERSION
from syncverify.scenario.schedule import COMPLETE, RANDOM, ScheduleCoverage
from syncverify.search.result import RunStatistics
from syncverify.sim.turns.timings import DEFAULT_DEPTH

_NAMED: Final = 4


def explored_lines(
    statistics: RunStatistics,
    *,
    num_replayed: int,
    num_failing: int,
    promises_overlap: bool,
) -> Iterator[str]:
    """Yield one line for each kind of run; `num_failing` violations are in replayed ones.

    Overlap is judged where the contract promises it, and measured in each run.
    """
    yield from _replay_lines(num_replayed, num_failing)
    if statistics.num_refused:
        yield (
            "refused by a clear error, as the contract allows: "
            + counted(statistics.num_refused, "scenario")
        )
    yield from _schedule_lines(statistics.schedules)
    done, possible = statistics.num_overlaps, statistics.num_overlaps_possible
    yield from _overlap_lines(done, possible, is_judged=promises_overlap)
    yield from _memory_lines(statistics.held)
    yield from statistics.remarks


def newer_values_lines(capabilities: Capabilities) -> Iterator[str]:
    """Yield a line about values that are newer than the contract, if there are any."""
    newer = [*map(str, capabilities.newer_features)]
    if newer:
        yield (
            f"the contract means the values of version {capabilities.table_version} of "
            f"{TABLE_VERSION}: {counted(len(newer), 'newer value')} beyond it "
            f"({first_of(newer, _NAMED)}); table_version = {TABLE_VERSION} promises them"
        )


def _replay_lines(num_replayed: int, num_failing: int) -> Iterator[str]:
    if num_replayed:
        yield (
            "saved by earlier runs, and played first: "
            f"{counted(num_replayed, 'scenario')}, with "
            f"{counted(num_failing, 'distinct violation')}"
        )


def _schedule_lines(played: Mapping[ScheduleCoverage, int]) -> Iterator[str]:
    """Describe schedules beyond the default one and one drawn."""
    complete = {each: n for each, n in played.items() if each.extent == COMPLETE}
    if complete:
        classes = sum(each.num_classes * number for each, number in complete.items())
        yield (
            f"schedules of {counted(sum(complete.values()), 'scenario')} complete: {classes} "
            f"classes of {_interleavings(complete)} interleavings"
        )
    by_chance = {each: n for each, n in played.items() if each.extent == RANDOM}
    if by_chance:
        least = min(each.probability for each in by_chance)
        yield (
            f"schedules of {counted(sum(by_chance.values()), 'scenario')} by random "
            f"priorities: in each, a bug of {DEFAULT_DEPTH} ordered moves was met with a "
            f"probability of at least {least:.2g}"
        )


def _interleavings(complete: Mapping[ScheduleCoverage, int]) -> str:
    total = sum((each.num_interleavings or 0) * n for each, n in complete.items())
    is_open = any(each.num_interleavings is None for each in complete)
    return f"more than {total}" if is_open else str(total)


def _overlap_lines(
    num_done: int, num_possible: int, *, is_judged: bool
) -> Iterator[str]:
    if num_possible:
        judged = "" if is_judged else " (not judged)"
        yield f"overlap with backward{judged}: {num_done} of {num_possible} possible steps"


def _memory_lines(held: HeldMemory) -> Iterator[str]:
    if held.is_pile:
        yield (
            f"memory: record_stream kept up to {held.num_blocks} freed blocks "
            f"({_bytes_text(held.num_bytes)}, the largest {_bytes_text(held.largest)}, "
            f"step {held.step}, rank {held.rank}) from reuse; freeing after "
            "stream.wait_event() keeps none"
        )


def _bytes_text(num_bytes: int) -> str:
    """Format an amount of memory, in the unit that leaves it below a thousand."""
    amount, unit = float(num_bytes), "B"
    for larger in ("KB", "MB", "GB"):
        if amount >= 1000:
            amount, unit = amount / 1000, larger
    return f"{amount:.4g} {unit}"
