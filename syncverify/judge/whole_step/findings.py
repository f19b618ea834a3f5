"""The mistakes behind the values that differ."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from itertools import groupby

import torch

from syncverify.judge.whole_step import causes
from syncverify.judge.whole_step.copies import copy_cause
from syncverify.judge.whole_step.differences import ComparedValue
from syncverify.judge.whole_step.factors import axes_with
from syncverify.judge.whole_step.gradient_causes import (
    added_bias,
    gradient_causes,
    grouped,
)
from syncverify.judge.whole_step.mesh_play import Known, MeshPlay
from syncverify.judge.whole_step.mixtures import Explained
from syncverify.judge.whole_step.norm_causes import clip_causes, norm_cause
from syncverify.judge.whole_step.own_values import by_own_values
from syncverify.judge.whole_step.unread import unread
from syncverify.judge.whole_step.values import NamedTensors, Quantity, parameter_of

# Values that follow from earlier ones of a rank are known exactly: any difference is a mistake.
_EXACT = (Quantity.STATE, Quantity.PARAMETER)


def findings(
    values: Iterable[ComparedValue], play: MeshPlay
) -> list[causes.WrongQuantity]:
    """Return the mistakes behind values that differ, of all values in the order of the steps."""
    found, follows = list[causes.WrongQuantity](), list[Quantity]()
    for (step, quantity), listed in groupby(
        values, key=lambda each: (each.step, each.quantity)
    ):
        every = [*listed]
        wrong = [each for each in every if each.wrong_ranks]
        if not wrong:
            continue
        if not found:
            found = [*_spread(_mistakes(wrong, len(every), play, play.start(step)))]
            continue
        new = _independent(wrong, len(every), play, found)
        found += new
        follows += [] if new else [quantity]
    ordered = tuple(each for each in Quantity if each in follows)
    return [replace(found[0], follows=ordered), *found[1:]] if found else []


def _mistakes(
    wrong: Sequence[ComparedValue], total: int, play: MeshPlay, start: NamedTensors
) -> list[causes.WrongQuantity]:
    """Return the mistakes behind wrong values of one quantity and step."""
    quantity, step = wrong[0].quantity, wrong[0].step
    return [
        causes.WrongQuantity(quantity, step, cause, tuple(listed), total)
        for cause, listed in _causes(wrong, play, start)
    ]


def _independent(
    wrong: list[ComparedValue],
    total: int,
    play: MeshPlay,
    found: Sequence[causes.WrongQuantity],
) -> list[causes.WrongQuantity]:
    """Return mistakes that the earlier ones do not explain, and that are not among them."""
    quantity, step = wrong[0].quantity, wrong[0].step
    if quantity in _EXACT and any(each.quantity in _EXACT for each in found):
        return []
    # Gradients of parameters that the optimizer leaves may pile up.
    left = (each for each in found if isinstance(each.cause, causes.NotUpdated))
    not_updated = {name for each in left for name in each.names}
    wrong = [each for each in wrong if parameter_of(each.name) not in not_updated]
    unexplained = by_own_values(play, quantity, step, wrong, _factors(found))
    ignored = unread(unexplained, play.ranks)
    unexplained = [each for each in unexplained if each not in ignored]
    if not unexplained:
        return []
    start = play.own_start(step) if step else None
    listed = _mistakes(unexplained, total, play, start or play.start(step))
    return [
        each
        for each in listed
        if quantity in _EXACT
        or not isinstance(each.cause, causes.Unexplained | causes.RanksDiffer)
        if not any(each.is_same(other) for other in found)
    ]


def _factors(found: Sequence[causes.WrongQuantity]) -> dict[str, float]:
    """Return the factor by which each step multiplies a gradient, by name."""
    return {
        name: each.cause.factor
        for each in found
        if each.quantity is Quantity.GRADIENT and isinstance(each.cause, causes.Scaled)
        for name in each.names
    }


def _spread(found: Sequence[causes.WrongQuantity]) -> Iterator[causes.WrongQuantity]:
    """Join values that no mistake explains with the mistake that they follow.

    A part of a sum that is missing flows back to the layers before: their gradients differ over
    the same axis, and no factor repairs them. Clipping that is not seen multiplies all
    gradients by a number that one wrong gradient changes.
    """
    rest = list[causes.WrongQuantity]()
    roots = [each for each in found if not _may_follow(each)]
    for each in found:
        if not _may_follow(each):
            continue
        root = next((r for r in roots if _explains(r, each)), None)
        if root is None:
            rest.append(each)
            continue
        joined = replace(root, spread=(*root.spread, *each.differences))
        roots[roots.index(root)] = joined
    every = [*roots, *rest]
    unexplained = [e for e in every if isinstance(e.cause, causes.Unexplained)]
    yield from (e for e in every if not isinstance(e.cause, causes.Unexplained))
    if unexplained:
        values = tuple(value for each in unexplained for value in each.differences)
        yield replace(unexplained[0], cause=causes.Unexplained(), differences=values)


def _may_follow(found: causes.WrongQuantity) -> bool:
    match found.cause:
        case causes.RanksDiffer() | causes.Unexplained():
            return found.quantity is Quantity.GRADIENT
        case causes.OtherCoefficient(norm=None):
            return found.quantity is Quantity.STEPPED
    return False


def _explains(root: causes.WrongQuantity, other: causes.WrongQuantity) -> bool:
    match root.cause, other.cause:
        case (
            causes.LacksSum(axes),
            causes.RanksDiffer(axes=over) | causes.Unexplained(over),
        ):
            return bool(over) and over <= axes
        case _, causes.OtherCoefficient():
            return True
    return False


def _causes(
    wrong: Sequence[ComparedValue], play: MeshPlay, start: NamedTensors
) -> list[Explained]:
    quantity, step = wrong[0].quantity, wrong[0].step
    known = play.known(step, start)
    match quantity:
        case Quantity.GRADIENT:
            listed = gradient_causes(wrong, known)
            is_open = all(
                isinstance(each, causes.Unexplained | causes.RanksDiffer)
                for each, _ in listed
            )
            bias = added_bias(wrong, play, start) if is_open else None
            return listed if bias is None else [(bias, [*wrong])]
        case Quantity.STEPPED:
            return clip_causes(wrong, known)
    return grouped((each, _cause(each, known)) for each in wrong)


def _cause(found: ComparedValue, known: Known) -> causes.StepMistake:
    match found.quantity:
        case Quantity.NORM | Quantity.RETURNED if found.name == "norm":
            return norm_cause(found, known)
        case Quantity.SKIPPED:
            steps = next(iter(found.expected.values()))
            return causes.Decided(tuple(found.wrong_ranks), int(steps))
        case Quantity.STATE | Quantity.PARAMETER:
            return _update_cause(found, known.play)
    return copy_cause(found, known.layout)


def _update_cause(found: ComparedValue, play: MeshPlay) -> causes.StepMistake:
    """Return why a parameter, or a state of its optimizer, is wrong though its gradient is not."""
    known = _frozen_cause(found, play) or _option_cause(found, play)
    if known is not None:
        return known
    if found.quantity is Quantity.PARAMETER and _is_as_before(found, play):
        return causes.NotUpdated(tuple(found.wrong_ranks))
    return copy_cause(found, play.layout)


def _is_as_before(found: ComparedValue, play: MeshPlay) -> bool:
    """Tell whether the optimizer's step left a parameter as it was, on all wrong ranks."""
    for rank in found.wrong_ranks:
        before = play.ranks[rank].parameters_before(found.step)
        ours, theirs = found.got[rank], before.get(found.name)
        if ours is None or theirs is None or not torch.equal(ours, theirs):
            return False
    return True


def _frozen_cause(found: ComparedValue, play: MeshPlay) -> causes.OtherlyFrozen | None:
    """Return that ranks freeze a parameter and one rank does not, or the reverse; None otherwise."""
    is_frozen = found.name in play.reference.values.frozen
    ranks = tuple(found.wrong_ranks)
    is_other = all((found.name in play.ranks[r].frozen) != is_frozen for r in ranks)
    return causes.OtherlyFrozen(ranks, not is_frozen) if ranks and is_other else None


def _option_cause(found: ComparedValue, play: MeshPlay) -> causes.OtherOption | None:
    """Return the first option of a parameter that differs from one rank's on all wrong ranks."""
    name, step = parameter_of(found.name), found.step
    plain = play.reference.values.steps[step].options.get(name, {})
    by_rank = [play.ranks[r].steps[step].options_of(name) for r in found.wrong_ranks]
    for option, expected in plain.items():
        values = [each.get(option, expected) for each in by_rank]
        if values and all(value != expected for value in values):
            return _other(name, option, values[0], expected, play)
    return None


def _other(
    parameter: str, name: str, value: object, expected: object, play: MeshPlay
) -> causes.OtherOption:
    starts = [each.steps[0].options_of(parameter).get("lr") for each in play.ranks]
    if name == "lr" and play.leaves_schedule and value in starts:
        return causes.OtherOption(name, value, expected, is_left=True)
    numbers = [each for each in (value, expected) if isinstance(each, int | float)]
    if len(numbers) == 2 and all(each > 0 for each in numbers):
        factor = numbers[0] / numbers[1]
        return causes.OtherOption(name, value, expected, axes_with(play.layout, factor))
    return causes.OtherOption(name, value, expected)
