"""Differences that an own step makes on purpose: clamped gradients, options that it sets."""

from __future__ import annotations

from collections.abc import Sequence

from syncverify.errors import UsageError
from syncverify.faces.whole_step.training import Training
from syncverify.judge.whole_step.causes import Clamped, OtherOption
from syncverify.judge.whole_step.findings import WrongQuantity
from syncverify.judge.whole_step.values import RankValues, parameter_of


def check_plain(
    training: Training, ranks: Sequence[RankValues], found: Sequence[WrongQuantity]
) -> None:
    """Check that the differences are mistakes, and not another way of training.

    Raises:
        UsageError: An own step makes all of them on purpose, and a plain one makes none.
    """
    if training.step is None or training.loss is None:
        return
    ways = [_own_way(training, ranks, each) for each in found]
    if ways and all(ways):
        raise UsageError(
            f"step() {ways[0]}, and torch's plain step on one rank does not; leave out `loss`, "
            "so that ranks are compared with your own step on one rank"
        )


def _own_way(
    training: Training, ranks: Sequence[RankValues], found: WrongQuantity
) -> str:
    """Return the way of training that makes a difference, in words; "" for a mistake."""
    match found.cause:
        case Clamped(limit):
            return f"cuts each element of a gradient off at {limit:g}"
        case OtherOption(name, value, expected) if training.schedule is None:
            first = found.differences[0]
            parameter = parameter_of(first.name)
            built = ranks[first.wrong_ranks[0]].options.get(parameter, {})
            if built.get(name) == expected:
                return f"sets {name}={value} in step {found.step + 1}"
    return ""
