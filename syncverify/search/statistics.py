"""Statistics of a search: they describe its runs and take no part in verdicts."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Self

from syncverify.judge.ordering.held_memory import HeldMemory, held_memory
from syncverify.judge.properties import overlap
from syncverify.scenario.scenario import Scenario
from syncverify.search.line_probe import PlayedLines, merged_lines
from syncverify.search.schedules import ScheduleCoverage
from syncverify.trace.run import Run


@dataclass(frozen=True, slots=True)
class RunStatistics:
    """Statistics of the runs before shrinking.

    Attributes:
        num_overlaps: Steps of ranks in which a reduction started before backward ended.
        num_overlaps_possible: Steps of ranks in which a reduction could have done so.
        held: The most memory that `record_stream` held back in one run.
        schedules: The schedules that were played, one entry per scenario.
        remarks: Remarks on runs, in words.
        num_refused: Number of scenarios in which the subject refused a value of plain steps by
            a clear error, as its contract allows.
        lines: Lines of the subject that ran, by file; none on backends with processes.
    """

    num_overlaps: int = 0
    num_overlaps_possible: int = 0
    held: HeldMemory = field(default_factory=HeldMemory)
    schedules: tuple[ScheduleCoverage, ...] = ()
    remarks: tuple[str, ...] = ()
    num_refused: int = 0
    lines: Mapping[str, PlayedLines] = field(default_factory=dict)

    @classmethod
    def merged(cls, parts: Sequence[Self]) -> Self:
        """Combine the statistics of several searches; of equal memory the first counts."""
        return cls(
            sum(part.num_overlaps for part in parts),
            sum(part.num_overlaps_possible for part in parts),
            max((part.held for part in parts), key=lambda held: held.extent),
            tuple(each for part in parts for each in part.schedules),
            tuple(each for part in parts for each in part.remarks),
            sum(part.num_refused for part in parts),
            merged_lines([part.lines for part in parts]),
        )


class StatisticsCollector:
    """Listens to a judge and collects statistics of its runs."""

    def __init__(self) -> None:
        self._of_runs = RunStatistics()
        # A scenario that is drawn twice counts once.
        self._schedules: dict[bytes, ScheduleCoverage] = {}
        self._refused: set[bytes] = set()

    def run_judged(self, scenario: Scenario, run: Run) -> None:
        """Count the overlaps of one run and measure its held memory."""
        overlaps = overlap(scenario, run)
        held = held_memory([rank_run.trace for rank_run in run.ranks])
        of_run = RunStatistics(
            overlaps.num_done, overlaps.num_possible, held, remarks=run.remarks
        )
        self._of_runs = RunStatistics.merged([self._of_runs, of_run])

    def schedules_played(self, digest: bytes, coverage: ScheduleCoverage) -> None:
        """Note the part of a scenario's schedules that was played."""
        self._schedules[digest] = coverage

    def scenario_refused(self, digest: bytes) -> None:
        """Note that the subject refused a scenario, as its contract allows."""
        self._refused.add(digest)

    def statistics(self) -> RunStatistics:
        """Return the statistics of all runs so far."""
        return replace(
            self._of_runs,
            schedules=tuple(self._schedules.values()),
            num_refused=len(self._refused),
        )
