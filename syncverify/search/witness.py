"""The result of looking for a witness: an order with its wrong gradient, or none."""

from __future__ import annotations

from dataclasses import dataclass

from syncverify.judge.ordering.races import Unordered


@dataclass(frozen=True, slots=True)
class Witness:
    """An order that the streams allow, and the wrong gradient that it leads to.

    Attributes:
        inverted: The race or early free that runs the other way round; None where the order
            in which the host queues the work is wrong already.
        is_of_violation: Whether this pair is the first and second of the violation.
        outcome: Which gradient is wrong, and why.
        expected: Elements of the right gradient.
        observed: Elements of the wrong one; None where there is no gradient.
        identity: Property and cause of the violation that the wrong gradient is.
    """

    inverted: Unordered | None
    is_of_violation: bool
    outcome: str
    expected: list[float] | None
    observed: list[float] | None
    identity: tuple[str, str] = ("", "")


@dataclass(frozen=True, slots=True)
class NoWitness:
    """No order that was played leads to a wrong gradient in this scenario.

    Attributes:
        num_orders: Number of orders that were played.
        reasons: Other reasons why no harm shows.
        is_elsewhere: Whether the search met a wrong gradient as a consequence, in another
            scenario.
    """

    num_orders: int
    reasons: tuple[str, ...] = ()
    is_elsewhere: bool = False
