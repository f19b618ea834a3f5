"""What an own step makes on purpose, and torch's plain step on one rank does not."""

from __future__ import annotations

from collections.abc import Sequence

from syncverify.errors import UsageError
from syncverify.whole_step.causes import Clamped, OtherOption
from syncverify.whole_step.findings import WrongQuantity
from syncverify.whole_step.training import Training
from syncverify.whole_step.values import RankValues, parameter_of


def check_plain(
    training: Training, ranks: Sequence[RankValues], found: Sequence[WrongQuantity]
) -> None:
    """Check that a difference is no other way of training.

    Raises:
        UsageError: All that differs is what the own step does beside a plain one.
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
