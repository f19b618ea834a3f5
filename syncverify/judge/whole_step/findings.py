"""The mistakes behind the values that differ."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import groupby

import torch

from syncverify.judge.whole_step.added_biases import added_bias
from syncverify.judge.whole_step.causes import (
    Decided,
    LacksSum,
    NotUpdated,
    OtherCoefficient,
    RanksDiffer,
    Scaled,
    StepMistake,
    Unexplained,
)
from syncverify.judge.whole_step.clip_causes import clip_causes
from syncverify.judge.whole_step.copies import copy_cause
from syncverify.judge.whole_step.differences import ComparedValue, piece
from syncverify.judge.whole_step.gradient_causes import gradient_causes, grouped
from syncverify.judge.whole_step.known import Known
from syncverify.judge.whole_step.mesh_play import MeshPlay
from syncverify.judge.whole_step.mixtures import Explained
from syncverify.judge.whole_step.norm_causes import norm_cause
from syncverify.judge.whole_step.option_causes import frozen_cause, option_cause
from syncverify.judge.whole_step.own_values import by_own_values
from syncverify.judge.whole_step.unread import unread
from syncverify.judge.whole_step.values import NamedTensors, Quantity, parameter_of

# Values that follow from earlier ones of a rank are known exactly: any difference is a mistake.
_EXACT = (Quantity.STATE, Quantity.PARAMETER)


@dataclass(frozen=True, slots=True)
class WrongQuantity:
    """One mistake.

    Attributes:
        quantity: The first quantity of a step that it makes wrong.
        step: Number of the first step that it makes wrong, from 0.
        cause: The mistake.
        differences: The wrong values of this quantity and step.
        follows: Later quantities that are wrong as well, in the order of a step; the first mistake
            of a training has them all.
        num_values: Number of values of the quantity, right or wrong.
        spread: Values of the same quantity and step that are wrong because of it, since a
            wrong gradient flows back to earlier layers, or into a norm.
    """

    quantity: Quantity
    step: int
    cause: StepMistake
    differences: tuple[ComparedValue, ...]
    follows: tuple[Quantity, ...]
    num_values: int
    spread: tuple[ComparedValue, ...] = ()

    @property
    def names(self) -> frozenset[str]:
        """The names of the wrong values."""
        return frozenset(each.name for each in self.differences)

    def is_same(self, other: WrongQuantity) -> bool:
        """Tell whether another finding, of another layout or step, is this mistake."""
        kinds = (self.quantity, self.cause.word)
        are_alike = kinds == (other.quantity, other.cause.word)
        return are_alike and not self.names.isdisjoint(other.names)


def findings(values: Iterable[ComparedValue], play: MeshPlay) -> list[WrongQuantity]:
    """Return the mistakes behind values that differ.

    Args:
        values: All compared values, in the order of the steps.
        play: The training on a mesh.
    """
    found, follows = list[WrongQuantity](), list[Quantity]()
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
) -> list[WrongQuantity]:
    """Return the mistakes behind wrong values of one quantity and step."""
    quantity, step = wrong[0].quantity, wrong[0].step
    return [
        WrongQuantity(
            quantity=quantity,
            step=step,
            cause=cause,
            differences=tuple(listed),
            follows=(),
            num_values=total,
        )
        for cause, listed in _causes(wrong, play, start)
    ]


def _independent(
    wrong: list[ComparedValue],
    total: int,
    play: MeshPlay,
    found: Sequence[WrongQuantity],
) -> list[WrongQuantity]:
    """Return mistakes that the earlier ones do not explain, and that are not among them."""
    quantity, step = wrong[0].quantity, wrong[0].step
    if quantity in _EXACT and any(each.quantity in _EXACT for each in found):
        return []
    not_updated = {name for each in found for name in _not_updated(each)}
    wrong = [each for each in wrong if parameter_of(each.name) not in not_updated]
    unexplained = by_own_values(play, quantity, step, wrong, _factors(found))
    ignored = unread(unexplained, play.ranks)
    unexplained = [e for e in unexplained if not any(e is other for other in ignored)]
    if not unexplained:
        return []
    start = play.own_start(step) if step else None
    listed = _mistakes(unexplained, total, play, start or play.start(step))
    return [
        each
        for each in listed
        if quantity in _EXACT or not isinstance(each.cause, Unexplained | RanksDiffer)
        if not any(each.is_same(other) for other in found)
    ]


def _factors(found: Sequence[WrongQuantity]) -> dict[str, float]:
    """Return the factor by which each step multiplies a gradient, by name."""
    return {
        name: each.cause.factor
        for each in found
        if each.quantity is Quantity.GRADIENT and isinstance(each.cause, Scaled)
        for name in each.names
    }


def _not_updated(found: WrongQuantity) -> list[str]:
    """Return the parameters that the optimizer leaves, and whose gradients may pile up."""
    if not isinstance(found.cause, NotUpdated):
        return []
    return [each.name for each in found.differences]


def _spread(found: Sequence[WrongQuantity]) -> Iterator[WrongQuantity]:
    """Join values that no mistake explains with the mistake that they follow.

    A part of a sum that is missing flows back to the layers before: their gradients differ over
    the same axis, and no factor repairs them. Clipping that is not seen multiplies all
    gradients by a number that one wrong gradient changes.
    """
    rest = list[WrongQuantity]()
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
    yield from _joined([*roots, *rest])


def _joined(found: Sequence[WrongQuantity]) -> Iterator[WrongQuantity]:
    """Join all values that no mistake explains, copies and shards."""
    unexplained = [each for each in found if _is_unexplained(each.cause)]
    yield from (each for each in found if not _is_unexplained(each.cause))
    if unexplained:
        values = tuple(value for each in unexplained for value in each.differences)
        yield replace(unexplained[0], cause=Unexplained(), differences=values)


def _is_unexplained(cause: StepMistake) -> bool:
    match cause:
        case Unexplained() | RanksDiffer(are_copies=False):
            return True
    return False


def _may_follow(found: WrongQuantity) -> bool:
    match found.cause:
        case RanksDiffer() | Unexplained():
            return found.quantity is Quantity.GRADIENT
        case OtherCoefficient(norm=None):
            return found.quantity is Quantity.STEPPED
    return False


def _explains(root: WrongQuantity, other: WrongQuantity) -> bool:
    match root.cause, other.cause:
        case LacksSum(axes), RanksDiffer(_, over):
            return bool(over) and over <= axes
        case _, OtherCoefficient():
            return True
    return False


def _causes(
    wrong: Sequence[ComparedValue], play: MeshPlay, start: NamedTensors
) -> list[Explained]:
    quantity, step = wrong[0].quantity, wrong[0].step
    known = play.known(step, start)
    match quantity:
        case Quantity.GRADIENT:
            causes = gradient_causes(wrong, known)
            is_open = all(
                isinstance(each, Unexplained | RanksDiffer) for each, _ in causes
            )
            bias = added_bias(wrong, play, start) if is_open else None
            return causes if bias is None else [(bias, [*wrong])]
        case Quantity.STEPPED:
            return _stepped_causes(wrong, play, known)
    return grouped((each, _cause(each, play, known)) for each in wrong)


def _cause(found: ComparedValue, play: MeshPlay, known: Known) -> StepMistake:
    match found.quantity:
        case Quantity.NORM | Quantity.RETURNED if found.name == "norm":
            return norm_cause(found, play.squares(found.step), known)
        case Quantity.SKIPPED:
            steps = next(iter(found.expected.values()))
            return Decided(tuple(found.wrong_ranks), int(steps))
        case Quantity.STATE | Quantity.PARAMETER:
            return _update_cause(found, play)
    return copy_cause(found, play.layout)


def _update_cause(found: ComparedValue, play: MeshPlay) -> StepMistake:
    """Return why a parameter, or a state of its optimizer, is wrong though its gradient is not."""
    frozen = frozen_cause(found, play.frozen, play.reference.values.frozen)
    if (known := frozen or option_cause(found, play)) is not None:
        return known
    if found.quantity is Quantity.PARAMETER and _is_as_before(found, play):
        return NotUpdated(tuple(found.wrong_ranks))
    return copy_cause(found, play.layout)


def _is_as_before(found: ComparedValue, play: MeshPlay) -> bool:
    """Tell whether the optimizer's step left a parameter as it was, on all wrong ranks."""
    for rank in found.wrong_ranks:
        values = play.ranks[rank]
        before = (
            values.steps[found.step - 1].tensors[Quantity.PARAMETER]
            if found.step
            else values.start
        )
        ours, theirs = found.got[rank], before.get(found.name)
        if ours is None or theirs is None or not torch.equal(ours, theirs):
            return False
    return True


def _pieces(
    found: ComparedValue, value: torch.Tensor | None, play: MeshPlay
) -> dict[int, torch.Tensor | None]:
    """Return the part of a whole value that each rank has."""
    own = play.own
    return {
        rank: None
        if value is None
        else piece(found.name, value, layout=play.layout, rank=rank, own=own, got=got)
        for rank, got in found.got.items()
    }


def _stepped_causes(
    wrong: Sequence[ComparedValue], play: MeshPlay, known: Known
) -> list[Explained]:
    """Return the causes of wrong gradients that the optimizer reads."""
    step = wrong[0].step
    is_seen = play.clip_is_seen(step)
    plain = play.reference.tensors(Quantity.GRADIENT, step)
    before = {
        each.name: (
            play.by_rank(Quantity.GRADIENT, step, each.name)
            if is_seen
            else _pieces(each, plain.get(each.name), play)
        )
        for each in wrong
    }
    squares = play.squares(step)
    clip = play.clip
    return clip_causes(wrong, before, squares, clip, known, is_seen=is_seen)
