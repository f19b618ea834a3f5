"""Coverage of a search: few lines for a reader, all numbers for a program."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any, Self

from syncverify.judge.properties import ALL_PROPERTIES
from syncverify.plain_text import first_of
from syncverify.scenario.coverage import Coverage

_NAMED_IN_A_LINE = 4
_NAMED_IN_AN_ERROR = 12


@dataclass(frozen=True, slots=True)
class CoverageSummary:
    """Feature values and pairs that the scenarios of a search had, and had not.

    Attributes:
        num_values: Number of feature values that the subject's contract allows.
        num_pairs: Number of pairs of values, of different topics, that it allows.
        missing_values: Values that never occurred, as `topic=value`.
        missing_pairs: Pairs of values that never occurred together.
        applied: By property: number of scenarios in which it had something to judge.
        not_promised: Properties about promises that the contract does not make.
        pairs: By pair of values that the contract allows: number of scenarios.
    """

    num_values: int = 0
    num_pairs: int = 0
    missing_values: tuple[str, ...] = ()
    missing_pairs: tuple[tuple[str, str], ...] = ()
    applied: dict[str, int] = field(default_factory=dict)
    not_promised: frozenset[str] = frozenset()
    pairs: dict[tuple[str, str], int] = field(default_factory=dict, repr=False)

    @classmethod
    def of(cls, coverage: Coverage) -> Self:
        """Sum up the counts of a search."""
        capabilities = coverage.space.capabilities
        values = coverage.space.values().values()
        pairs = {
            (str(one), str(other)): count
            for (one, other), count in coverage.pair_counts().items()
        }
        return cls(
            num_values=sum(map(len, values)),
            num_pairs=len(pairs),
            missing_values=tuple(map(str, coverage.missing_values())),
            missing_pairs=tuple(pair for pair, count in pairs.items() if not count),
            pairs=pairs,
            applied={
                entry.name: coverage.applied[entry.name] for entry in ALL_PROPERTIES
            },
            not_promised=frozenset(
                entry.name
                for entry in ALL_PROPERTIES
                if entry.promise and not getattr(capabilities, entry.promise)
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
        without_promise = [name for name in idle if name in self.not_promised]
        without_case = [name for name in idle if name not in self.not_promised]
        if without_case:
            named = first_of(without_case, _NAMED_IN_A_LINE)
            yield f"not judged (no scenario applies): {named}"
        if without_promise:
            named = first_of(without_promise, _NAMED_IN_A_LINE)
            yield f"not judged (not promised by the contract): {named}"

    def gap_lines(self) -> Iterator[str]:
        """Yield all values that never occurred, and each pair that never did."""
        if self.missing_values:
            yield f"never: {', '.join(self.missing_values)}"
        for pair in self.missing_pairs:
            yield f"never together: {' and '.join(pair)}"

    def clause_of_missing_values(self) -> str:
        """Say how many values of the contract no scenario had; "" if each was met."""
        count = len(self.missing_values)
        if not count:
            return ""
        was = "was" if count == 1 else "were"
        named = first_of(self.missing_values, _NAMED_IN_A_LINE)
        return (
            f", but {count} of {self.num_values} values {was} in no scenario: {named}"
        )

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
