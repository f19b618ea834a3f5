"""Options of optimizers, and frozen parameters, that differ from those on one rank."""

from __future__ import annotations

from collections.abc import Sequence
from collections.abc import Set as AbstractSet
from dataclasses import replace

from syncverify.judge.whole_step.causes import OtherlyFrozen, OtherOption
from syncverify.judge.whole_step.differences import ComparedValue
from syncverify.judge.whole_step.factors import axes_with
from syncverify.judge.whole_step.mesh_play import MeshPlay
from syncverify.judge.whole_step.values import parameter_of


def frozen_cause(
    found: ComparedValue,
    by_rank: Sequence[AbstractSet[str]],
    plain: AbstractSet[str],
) -> OtherlyFrozen | None:
    """Return that ranks freeze a parameter and one rank does not, or the reverse; None otherwise.

    Args:
        found: The value of the parameter.
        by_rank: Frozen parameters by rank.
        plain: Frozen parameters of one rank.
    """
    is_frozen = found.name in plain
    ranks = tuple(
        r for r in found.wrong_ranks if (found.name in by_rank[r]) != is_frozen
    )
    is_all = bool(ranks) and len(ranks) == len(found.wrong_ranks)
    return OtherlyFrozen(ranks, not is_frozen) if is_all else None


def option_cause(found: ComparedValue, play: MeshPlay) -> OtherOption | None:
    """Return the first option of a parameter that differs from one rank's on all wrong ranks."""
    name, step = parameter_of(found.name), found.step
    plain = play.reference.values.steps[step].options.get(name, {})
    by_rank = [play.ranks[r].steps[step].options_of(name) for r in found.wrong_ranks]
    for option, expected in plain.items():
        values = [each.get(option, expected) for each in by_rank]
        if values and all(value != expected for value in values):
            other = _other(option, values[0], expected, play)
            is_left = _is_left(name, other, play)
            return replace(other, axes=frozenset(), is_left=True) if is_left else other
    return None


def _is_left(parameter: str, other: OtherOption, play: MeshPlay) -> bool:
    """Tell whether the own step leaves the learning rate, since it takes no schedule."""
    if other.name != "lr" or not play.leaves_schedule:
        return False
    starts = [each.steps[0].options_of(parameter).get("lr") for each in play.ranks]
    return other.value in starts


def _other(name: str, value: object, expected: object, play: MeshPlay) -> OtherOption:
    numbers = [each for each in (value, expected) if isinstance(each, int | float)]
    if len(numbers) == 2 and all(each > 0 for each in numbers):
        factor = numbers[0] / numbers[1]
        return OtherOption(name, value, expected, axes_with(play.layout, factor))
    return OtherOption(name, value, expected)
