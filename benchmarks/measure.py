"""One number with its target, spread and peer."""

import statistics
from collections.abc import Sequence
from dataclasses import dataclass, field, replace

from benchmarks.rounds import Times


@dataclass(frozen=True, slots=True)
class Measure:
    """What was measured, and whether it is what was aimed at.

    Attributes:
        key: Where the JSON has it.
        peer: Whom or what it is compared with.
        target: Met up to and including this value; from this value on if `at_least`.
        unit: "x" for a ratio to the peer, or microseconds, or seconds.
        value: The median; None if it could not be measured.
        quartiles: The middle half of the rounds lies between them.
        medians_ms: Of each contestant, by name.
        note: Why there is no value, or what else to know.
        at_least: Whether more is better.
    """

    key: tuple[str, ...]
    peer: str
    target: float
    unit: str = "x"
    value: float | None = None
    quartiles: tuple[float, float] | None = None
    medians_ms: dict[str, float] = field(default_factory=dict)
    note: str = ""
    at_least: bool = False

    @property
    def is_met(self) -> bool | None:
        """Whether the target is met; None if nothing was measured."""
        if self.value is None:
            return None
        return self.value >= self.target if self.at_least else self.value <= self.target

    @property
    def verdict(self) -> str:
        """The same in a word; a value whose spread crosses the target is said to."""
        if self.value is None or self.quartiles is None:
            return "not measured"
        word = "met" if self.is_met else "missed"
        low, high = self.quartiles
        return f"{word}, within spread" if low <= self.target <= high else word

    @property
    def label(self) -> str:
        return " ".join(self.key)


def ratio(
    key: tuple[str, ...], times: Times, ours: str, peer: str, *, target: float
) -> Measure:
    """Compare two contestants round by round."""
    pairs = zip(times[ours], times[peer], strict=True)
    return summary(key, [a / b for a, b in pairs], times, peer=peer, target=target)


def speedup(
    key: tuple[str, ...], times: Times, ours: str, peer: str, *, target: float
) -> Measure:
    """Tell how many times a peer's time holds ours, round by round."""
    pairs = zip(times[ours], times[peer], strict=True)
    found = summary(key, [b / a for a, b in pairs], times, peer=peer, target=target)
    return replace(found, at_least=True)


def summary(
    key: tuple[str, ...],
    values: Sequence[float],
    times: Times,
    *,
    peer: str,
    target: float,
    unit: str = "x",
) -> Measure:
    """Summarize one value a round."""
    low, middle, high = statistics.quantiles(values, n=4, method="inclusive")
    medians_ms = {name: 1e3 * statistics.median(of) for name, of in times.items()}
    return Measure(key, peer, target, unit, middle, (low, high), medians_ms)
