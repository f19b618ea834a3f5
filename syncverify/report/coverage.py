"""What the scenarios of a search covered: few lines for a reader, all numbers for a program."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, Final, Self

from typing_extensions import override

from syncverify.judge.properties import ALL_PROPERTIES
from syncverify.plain_text import counted, first_of
from syncverify.scenario.contract import Capabilities
from syncverify.scenario.coverage import Coverage
from syncverify.scenario.feature_table import TABLE_VERSION
from syncverify.scenario.schedule import COMPLETE, RANDOM, ScheduleCoverage
from syncverify.scenario.small_scope import SmallScope
from syncverify.search.result import RunStatistics
from syncverify.sim.turns.timings import DEFAULT_DEPTH

_NAMED_IN_A_LINE: Final = 4
_NAMED_IN_AN_ERROR: Final = 12


@dataclass(frozen=True, slots=True)
class CoverageSummary:
    """Feature values and pairs that the contract allows, and those that no scenario had."""

    num_values: int = 0
    num_pairs: int = 0  # of values of different topics
    missing_values: tuple[str, ...] = ()  # as `topic=value`
    # Values that never occurred together.
    missing_pairs: tuple[tuple[str, str], ...] = ()
    # By property: number of scenarios in which it had something to judge.
    applied: dict[str, int] = field(default_factory=dict)
    # Properties about promises that the contract does not make.
    not_promised: frozenset[str] = frozenset()
    # By pair of values: number of scenarios.
    pairs: dict[tuple[str, str], int] = field(default_factory=dict, repr=False)

    @classmethod
    def of(cls, coverage: Coverage) -> Self:
        """Sum up the counts of a search."""
        capabilities = coverage.space.capabilities
        values = coverage.space.values().values()
        counts = coverage.pair_counts().items()
        pairs = {(str(one), str(other)): count for (one, other), count in counts}
        return cls(
            num_values=sum(map(len, values)),
            num_pairs=len(pairs),
            missing_values=tuple(map(str, coverage.missing_values())),
            missing_pairs=tuple(pair for pair, count in pairs.items() if not count),
            pairs=pairs,
            applied={each.name: coverage.applied[each.name] for each in ALL_PROPERTIES},
            not_promised=frozenset(
                each.name
                for each in ALL_PROPERTIES
                if each.promise and not getattr(capabilities, each.promise)
            ),
        )

    def lines(self) -> Iterator[str]:
        """Yield one line, and one for each reason why properties judged nothing."""
        yield (
            f"coverage: {self.num_values - len(self.missing_values):,} of "
            f"{self.num_values:,} feature values, "
            f"{self.num_pairs - len(self.missing_pairs):,} of {self.num_pairs:,} pairs"
        )
        idle = [name for name, count in self.applied.items() if not count]
        reasons = {
            "no scenario applies": [n for n in idle if n not in self.not_promised],
            "not promised by the contract": [n for n in idle if n in self.not_promised],
        }
        for reason, names in reasons.items():
            if names:
                yield f"not judged ({reason}): {first_of(names, _NAMED_IN_A_LINE)}"

    def gap_lines(self) -> Iterator[str]:
        """Yield all values that never occurred, and each pair that never did."""
        if self.missing_values:
            yield f"never: {', '.join(self.missing_values)}"
        for pair in self.missing_pairs:
            yield f"never together: {' and '.join(pair)}"

    def clause_of_missing_values(self) -> str:
        """Say how many values of the contract no scenario had; "" if each was met."""
        count = len(self.missing_values)
        was = "was" if count == 1 else "were"
        named = first_of(self.missing_values, _NAMED_IN_A_LINE)
        words = (
            f", but {count} of {self.num_values} values {was} in no scenario: {named}"
        )
        return words if count else ""

    def gap(self, percent_of_pairs: float) -> str | None:
        """Describe missing coverage; None if all values and enough pairs occurred."""
        met = self.num_pairs - len(self.missing_pairs)
        if not self.missing_values and 100 * met >= percent_of_pairs * self.num_pairs:
            return None
        missing = [*self.missing_values, *map(" with ".join, self.missing_pairs)]
        return (
            f"expected every feature value and {percent_of_pairs:g} % of the pairs, but "
            f"{len(self.missing_values)} of {self.num_values} values and "
            f"{len(self.missing_pairs)} of {self.num_pairs} pairs never occurred: "
            f"{first_of(missing, _NAMED_IN_AN_ERROR)}; play more examples, or declare in "
            "Capabilities(outside=...) the features that the subject does not cover"
        )

    def to_json(self) -> dict[str, Any]:
        """Return plain JSON values."""
        return {
            "declared": {"values": self.num_values, "pairs": self.num_pairs},
            "untouched": {
                "values": list(self.missing_values),
                "pairs": [list(pair) for pair in self.missing_pairs],
            },
            "applied": {**self.applied},
        }


@dataclass(frozen=True, slots=True)
class Bound:
    """The bound within which all scenarios hold: what an exhaustive search played of a scope."""

    scope: SmallScope
    num_scenarios: int
    num_played: int
    # Number of scenarios by the part of their schedules that was played.
    schedules: Mapping[ScheduleCoverage, int]
    num_violations: int  # distinct ones

    @property
    def num_undecided(self) -> int:
        """Number of scenarios with more classes of schedules than were played."""
        return sum(_with_extent(self.schedules, RANDOM).values())

    @property
    def num_branching(self) -> int:
        """Number of scenarios with several classes, each of which was played."""
        return sum(_with_extent(self.schedules, COMPLETE).values())

    @property
    def num_classes(self) -> int:
        """Number of the classes of these."""
        complete = _with_extent(self.schedules, COMPLETE)
        return sum(each.num_classes * n for each, n in complete.items())

    @property
    def is_proof(self) -> bool:
        """Tell whether all scenarios of the scope hold, with all schedules."""
        return not self.num_violations and self.gap is None

    @property
    def gap(self) -> str | None:
        """What was not played, in words; None if nothing."""
        if self.num_played < self.num_scenarios:
            left = self.num_scenarios - self.num_played
            return (
                f"{left:,} of {self.num_scenarios:,} scenarios of the scope were not played; the "
                "same command goes on"
            )
        if self.num_undecided:
            return (
                f"{counted(self.num_undecided, 'scenario')} of the scope had more classes of "
                "schedules than were played; raise N of --schedules all:N"
            )
        return None

    @override
    def __str__(self) -> str:
        """Say what holds within the bound, or what was played of it."""
        classes = (
            f"order matters in {self.num_branching:,} of them, and each of their "
            f"{self.num_classes:,} classes of schedules was played"
            if self.num_branching
            else "order matters in none of them"
        )
        if self.is_proof:
            return f"all {self.num_scenarios:,} of them hold, with all schedules: {classes}"
        return f"{self.num_played:,} of {self.num_scenarios:,} were played: {classes}"

    def to_json(self) -> dict[str, Any]:
        """Return plain JSON values."""
        return {
            "scope": str(self.scope),
            "scenarios": self.num_scenarios,
            "played": self.num_played,
            "undecided": self.num_undecided,
            "branching": self.num_branching,
            "classes": self.num_classes,
            "holds": self.is_proof,
        }


def _with_extent(
    played: Mapping[ScheduleCoverage, int], extent: str
) -> dict[ScheduleCoverage, int]:
    return {each: n for each, n in played.items() if each.extent == extent}


def explored_lines(
    statistics: RunStatistics,
    *,
    num_replayed: int,
    num_failing: int,
    promises_overlap: bool,
) -> Iterator[str]:
    """Yield one line for each kind of run; `num_failing` violations are in replayed ones."""
    if num_replayed:
        yield (
            "saved by earlier runs, and played first: "
            f"{counted(num_replayed, 'scenario')}, with "
            f"{counted(num_failing, 'distinct violation')}"
        )
    if statistics.num_refused:
        yield (
            "refused by a clear error, as the contract allows: "
            + counted(statistics.num_refused, "scenario")
        )
    yield from _schedule_lines(statistics.schedules)
    if possible := statistics.num_overlaps_possible:
        judged = "" if promises_overlap else " (not judged)"
        done = statistics.num_overlaps
        yield f"overlap with backward{judged}: {done} of {possible} possible steps"
    held = statistics.held
    if held.is_pile:
        yield (
            f"memory: record_stream kept up to {held.num_blocks} freed blocks "
            f"({_bytes_text(held.num_bytes)}, the largest {_bytes_text(held.largest)}, "
            f"step {held.step}, rank {held.rank}) from reuse; freeing after "
            "stream.wait_event() keeps none"
        )
    yield from statistics.remarks


def newer_values_lines(capabilities: Capabilities) -> Iterator[str]:
    """Yield a line about values that are newer than the contract, if there are any."""
    newer = [*map(str, capabilities.newer_features)]
    if newer:
        yield (
            f"the contract means the values of version {capabilities.table_version} of "
            f"{TABLE_VERSION}: {counted(len(newer), 'newer value')} beyond it "
            f"({first_of(newer, _NAMED_IN_A_LINE)}); table_version = {TABLE_VERSION} "
            "promises them"
        )


def _schedule_lines(played: Mapping[ScheduleCoverage, int]) -> Iterator[str]:
    """Describe schedules beyond the default one and one drawn."""
    if complete := _with_extent(played, COMPLETE):
        classes = sum(each.num_classes * n for each, n in complete.items())
        total = sum((each.num_interleavings or 0) * n for each, n in complete.items())
        is_open = any(each.num_interleavings is None for each in complete)
        yield (
            f"schedules of {counted(sum(complete.values()), 'scenario')} complete: "
            f"{classes} classes of {'more than ' if is_open else ''}{total} interleavings"
        )
    if by_chance := _with_extent(played, RANDOM):
        least = min(each.probability for each in by_chance)
        yield (
            f"schedules of {counted(sum(by_chance.values()), 'scenario')} by random "
            f"priorities: in each, a bug of {DEFAULT_DEPTH} ordered moves was met with a "
            f"probability of at least {least:.2g}"
        )


def _bytes_text(num_bytes: int) -> str:
    """Format an amount of memory, in the unit that leaves it below a thousand."""
    amount, unit = float(num_bytes), "B"
    for larger in ("KB", "MB", "GB"):
        if amount >= 1000:
            amount, unit = amount / 1000, larger
    return f"{amount:.4g} {unit}"
