"""The statistics and the result of a search, and the merged result of several."""

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Self

from typing_extensions import override

from syncverify.judge.consequences import other_forms
from syncverify.judge.ordering.held_memory import HeldMemory, held_memory
from syncverify.judge.properties import overlap
from syncverify.scenario.coverage import Coverage
from syncverify.scenario.features import size_of
from syncverify.scenario.scenario import Scenario
from syncverify.scenario.schedule import ScheduleCoverage
from syncverify.search.found_violation import FoundViolation
from syncverify.search.judge import Identity, RunListener
from syncverify.search.line_probe import PlayedLines, merged_lines
from syncverify.search.occurrences import Occurrences, ranked
from syncverify.trace.run import Run


@dataclass(frozen=True, slots=True)
class RunStatistics:
    """Statistics of the runs before shrinking."""

    # Steps of ranks in which a reduction started before backward ended, or could have done so.
    num_overlaps: int = 0
    num_overlaps_possible: int = 0
    # The most memory that `record_stream` held back in one run.
    held: HeldMemory = field(default_factory=HeldMemory)
    # The number of scenarios by the schedules that were played of each.
    schedules: Mapping[ScheduleCoverage, int] = field(default_factory=dict)
    # Remarks on runs, in words, each once.
    remarks: tuple[str, ...] = ()
    # Number of scenarios in which the subject refused a value of plain steps by a clear error, as
    # its contract allows.
    num_refused: int = 0
    # Lines of the subject that ran, by file; none on backends with processes.
    lines: Mapping[str, PlayedLines] = field(default_factory=dict)
    # Largest number of steps of a run that came to its end.
    most_steps: int = 0

    @classmethod
    def merged(cls, parts: Sequence[Self]) -> Self:
        """Combine the statistics of several searches; of equal memory the first counts."""
        return cls(
            num_overlaps=sum(part.num_overlaps for part in parts),
            num_overlaps_possible=sum(part.num_overlaps_possible for part in parts),
            held=max((part.held for part in parts), key=lambda held: held.extent),
            schedules=sum((Counter(part.schedules) for part in parts), Counter()),
            remarks=(*dict.fromkeys(each for part in parts for each in part.remarks),),
            num_refused=sum(part.num_refused for part in parts),
            lines=merged_lines([part.lines for part in parts]),
            most_steps=max((part.most_steps for part in parts), default=0),
        )


class StatisticsCollector(RunListener):
    """Listens to a judge and collects statistics of its runs."""

    def __init__(self) -> None:
        self._of_runs = RunStatistics()
        # A scenario that is drawn twice counts once.
        self._schedules: dict[bytes, ScheduleCoverage] = {}
        self._refused: set[bytes] = set()

    @override
    def run_judged(self, scenario: Scenario, run: Run, *, is_refused: bool) -> None:
        """Count the overlaps of one run and measure its held memory."""
        if is_refused:
            self._refused.add(scenario.digest())
        overlaps = overlap(scenario, run)
        of_run = RunStatistics(
            overlaps.num_done,
            overlaps.num_possible,
            held_memory([rank_run.trace for rank_run in run.ranks]),
            remarks=run.remarks,
            most_steps=scenario.num_steps if run.fault is None else 0,
        )
        self._of_runs = RunStatistics.merged([self._of_runs, of_run])

    @override
    def schedules_played(self, digest: bytes, coverage: ScheduleCoverage) -> None:
        self._schedules[digest] = coverage

    def statistics(self) -> RunStatistics:
        """Return the statistics of all runs so far."""
        return replace(
            self._of_runs,
            schedules=Counter(self._schedules.values()),
            num_refused=len(self._refused),
        )


@dataclass(slots=True)
class SearchResult:
    """Coverage, violations and statistics of a search.

    Numbers, coverage and statistics are those of the runs before shrinking.
    """

    num_examples: int
    seconds: float  # of the search, including shrinking
    coverage: Coverage
    # The shrunk violations; `merged` puts them in the order of `ALL_PROPERTIES`.
    violations: list[FoundViolation]
    statistics: RunStatistics = field(default_factory=RunStatistics)
    # The violations of the runs before shrinking, with those that other ones explain.
    met: Occurrences = field(default_factory=Occurrences)
    # Why no further scenario was played; "" if all were, or if a user asked for the end.
    stopped: str = ""
    # Number of decisions of each schedule that was drawn, by the digest of its scenario; none
    # where nothing was met, and none of several results.
    draws: Mapping[bytes, int] = field(default_factory=dict)
    # File from which the search would go on, to delete once its report is written; None for none,
    # or while scenarios are left.
    campaign: Path | None = None


def distinct_identities(identities: Iterable[Identity]) -> list[Identity]:
    """Return identities in the order of `ALL_PROPERTIES`, without other forms of them."""
    ordered = ranked(identities)
    forms = other_forms(ordered)
    return [identity for identity in ordered if identity not in forms]


def merged(results: Sequence[SearchResult]) -> SearchResult:
    """Return results on one subject and backend, at least one, as those of one search.

    The smallest scenario of each violation counts, or the first of several that are equally
    small. The seconds of the result are those of the slowest search. Each violation has those
    that it explains.
    """
    coverage, met = Coverage(results[0].coverage.space), results[0].met
    if len(results) > 1:
        met = Occurrences()
        for result in results:
            met.update(result.met)
    smallest: dict[Identity, FoundViolation] = {}
    for result in results:
        coverage.update(result.coverage)
        for entry in result.violations:
            known = smallest.setdefault(entry.violation.identity, entry)
            if size_of(entry.scenario) < size_of(known.scenario):
                smallest[entry.violation.identity] = entry
    met.own.update(smallest)
    related = met.reported()
    explained = (one for each in smallest for one in related.get(each, ()))
    listed = {(one.property, one.cause) for one in explained}
    return SearchResult(
        num_examples=sum(result.num_examples for result in results),
        seconds=max(result.seconds for result in results),
        coverage=coverage,
        violations=[
            replace(smallest[identity], related=related.get(identity, ()))
            for identity in ranked(smallest.keys())
            if identity not in listed  # nothing that was shrunk is lost
        ],
        statistics=RunStatistics.merged([result.statistics for result in results]),
        met=met,
        stopped=next((result.stopped for result in results if result.stopped), ""),
        campaign=next((each.campaign for each in results if each.campaign), None),
    )
