"""A measure: one number with its target, spread and peer."""

import statistics
from collections.abc import Sequence
from dataclasses import dataclass, field, replace

from studies.benchmarks.rounds import Times


@dataclass(frozen=True, slots=True)
class Measure:
    """One measured number and its target.

    Attributes:
        key: Path of the value in the JSON document.
        peer: Name of the contestant that ours is compared with.
        target: Largest value that meets the target; the smallest one if `at_least`.
        unit: "x" for a ratio to the peer, or "s".
        value: Median of the rounds; None if nothing was measured.
        quartiles: First and third quartile of the rounds.
        num_rounds: Number of rounds; 0 if nothing was measured.
        medians_ms: Median time of each contestant in milliseconds, by name.
        note: Reason why there is no value, or a remark.
        at_least: Whether a larger value is better.
    """

    key: tuple[str, ...]
    peer: str
    target: float
    unit: str = "x"
    value: float | None = None
    quartiles: tuple[float, float] | None = None
    num_rounds: int = 0
    medians_ms: dict[str, float] = field(default_factory=dict)
    note: str = ""
    at_least: bool = False

    @property
    def is_met(self) -> bool | None:
        """Tell whether the target is met; None if nothing was measured."""
        if self.value is None:
            return None
        return self.value >= self.target if self.at_least else self.value <= self.target

    @property
    def verdict(self) -> str:
        """Return `is_met` in words, with a remark if the quartiles enclose the target."""
        if self.value is None or self.quartiles is None:
            return "not measured"
        word = "met" if self.is_met else "missed"
        low, high = self.quartiles
        return f"{word}, within spread" if low <= self.target <= high else word

    @property
    def label(self) -> str:
        """Return the name in a table."""
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
    """Divide the time of a peer by ours, round by round."""
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
    """Make a measure from one value for each round."""
    low, middle, high = statistics.quantiles(values, n=4, method="inclusive")
    medians_ms = {name: 1e3 * statistics.median(of) for name, of in times.items()}
    return Measure(
        key=key,
        peer=peer,
        target=target,
        unit=unit,
        value=middle,
        quartiles=(low, high),
        num_rounds=len(values),
        medians_ms=medians_ms,
    )
