"""Wrong gradients that no parameter depends on.

Note [Gradients that nobody reads]

With ZeRO by hand, a rank owns a part of a parameter. It may leave any gradient in the other elements:
the result of its optimizer there is replaced by the owner's. Such gradients are no mistake:

- An element of a rank is *replaced* if the step writes another value where the optimizer has left one,
  or if the optimizer leaves it as it was. A wrong gradient, or state, of a replaced element is unread if
  another rank, which should have the same value, has the right one. A state that was loaded is
  unread if the first step after loading replaces the element.
- An optimizer with tensors of its own, such as a flat slice of all parameters, may read other gradients
  than those of the model. Then gradients of the model are unread if the parameter is right after
  each step. Where such a tensor is a copy of one parameter, its gradient is judged in any case.

- If such a parameter is wrong, its gradient may still be the mistake, when the slice took it. Then each
  element of the parameter is what the optimizer makes of the gradient of some rank. Otherwise the
  gradient is unread.

If no rank has the right gradient, or the owner's is wrong, it is a mistake. Adam hides a wrong factor
in its gradients. So right parameters alone prove nothing where the optimizer has the parameters of the
model: the element has to be replaced.
"""

from collections.abc import Iterable, Mapping, Sequence

import torch

from syncverify.judge.whole_step.differences import GRADIENTS, ComparedValue, are_close
from syncverify.judge.whole_step.mesh_play import MeshPlay
from syncverify.judge.whole_step.values import (
    NamedTensors,
    Quantity,
    RankValues,
    parameter_of,
)

_OF_OPTIMIZERS = (*GRADIENTS, Quantity.STATE, Quantity.LOADED_STATE)
_Values = Mapping[tuple[Quantity, int, str], ComparedValue]


def unread(
    values: Iterable[ComparedValue], ranks: Sequence[RankValues]
) -> list[ComparedValue]:
    """Return wrong gradients, and states of optimizers, that no parameter depends on.

    Loaded values have the number of the first step after loading.
    """
    by_key = {(each.quantity, each.step, each.name): each for each in values}
    return [
        each
        for each in by_key.values()
        if each.quantity in _OF_OPTIMIZERS and each.wrong_ranks
        if _is_of_right_parameter(each, by_key, ranks) or _is_replaced(each, ranks)
    ]


def left_steps(values: Iterable[ComparedValue]) -> list[ComparedValue]:
    """Return numbers of steps of ranks that leave the whole update to an owner, which sends it."""
    listed = [*values]
    if any(e.wrong_ranks for e in listed if e.quantity is Quantity.PARAMETER):
        return []
    return [
        each
        for each in listed
        if each.quantity is Quantity.SKIPPED
        if 0 < len(each.wrong_ranks) < len(each.got)
        if not any(each.got[rank] for rank in each.wrong_ranks)
        if all(each.expected[rank] for rank in each.wrong_ranks)
    ]


def _is_of_right_parameter(
    value: ComparedValue, by_key: _Values, ranks: Sequence[RankValues]
) -> bool:
    """Tell whether optimizers read gradients in the place of a wrong one of a right parameter."""
    if value.quantity not in GRADIENTS:
        return False
    parameters = [
        each
        for (quantity, _, name), each in by_key.items()
        if quantity is Quantity.PARAMETER and name == value.name
    ]
    if any(each.wrong_ranks or not each.is_judged for each in parameters):
        return False
    read = by_key.get((Quantity.STEPPED, value.step, value.name))
    read_wrongly = [] if read is None else read.wrong_ranks
    steps = {rank: ranks[rank].steps[value.step] for rank in value.wrong_ranks}
    return bool(parameters) and all(
        value.name in step.read_elsewhere
        or (value.name in step.copied and rank not in read_wrongly)
        for rank, step in steps.items()
    )


def _is_replaced(value: ComparedValue, ranks: Sequence[RankValues]) -> bool:
    """Tell whether all wrong elements are replaced, and each is right on another rank."""
    for rank in value.wrong_ranks:
        expected = value.expected[rank]
        is_owned = torch.zeros_like(expected, dtype=torch.bool)
        for other, theirs in value.expected.items():
            if other != rank and torch.equal(theirs, expected):
                is_owned |= _is_right(value, other)
        is_unread = _replaced(value, rank, ranks[rank]) & is_owned
        if not bool((_is_right(value, rank) | is_unread).all()):
            return False
    return True


def _is_right(value: ComparedValue, rank: int) -> torch.Tensor:
    """Return which elements of a rank are right."""
    expected = value.expected[rank].double()
    got = value.got[rank]
    ours = torch.zeros_like(expected) if got is None else got.double()
    if ours.shape != expected.shape:
        return torch.zeros_like(expected, dtype=torch.bool)
    return are_close(ours, expected, value.tolerance)


def _replaced(value: ComparedValue, rank: int, values: RankValues) -> torch.Tensor:
    """Return which elements have no value that the optimizer of a rank has made."""
    name, step = parameter_of(value.name), values.steps[value.step]
    before = values.parameters_before(value.step).get(name)
    after = step.tensors[Quantity.PARAMETER].get(name)
    shape = value.expected[rank].shape
    nowhere = torch.zeros(shape, dtype=torch.bool)
    if before is None or after is None or after.shape != before.shape:
        return nowhere
    left = step.left.get(name)
    left = after if left is None else left
    is_replaced = (left != after) | (left == before)
    if shape:
        return is_replaced if after.shape == shape else nowhere
    # A counter of steps belongs to all elements.
    return is_replaced.all()


def is_read_elsewhere(
    value: ComparedValue, ranks: Sequence[RankValues], first_step: int = 0
) -> bool:
    """Tell whether optimizers of all wrong ranks may read other gradients than a wrong one."""
    return value.quantity in GRADIENTS and all(
        value.name in ranks[rank].steps[value.step - first_step].read_elsewhere
        for rank in value.wrong_ranks
    )


def read_elsewhere(
    values: Sequence[ComparedValue], play: MeshPlay
) -> list[ComparedValue]:
    """Return the wrong gradients that no optimizer reads, by the parameters after the step."""
    off = {e.name for e in values if e.quantity is Quantity.PARAMETER and e.wrong_ranks}
    near = (each for each in values if each.name in off and each.wrong_ranks)
    wrong = [each for each in near if is_read_elsewhere(each, play.ranks)]
    if not wrong or not play.has_loss:
        return []
    made = [play.optimized(each) for each in play.ranks]
    after = {
        (each.step, each.name): each
        for each in values
        if each.quantity is Quantity.PARAMETER and each.is_judged
    }
    return [
        each
        for each in wrong
        if (parameter := after.get((each.step, each.name))) is not None
        if not _is_made(parameter, [of[each.step][Quantity.PARAMETER] for of in made])
    ]


def _is_made(found: ComparedValue, made: Sequence[NamedTensors]) -> bool:
    """Tell whether each element of a rank's parameter is what the optimizer makes on some rank."""
    for value in (each for each in found.got.values() if each is not None):
        others = [each.get(found.name) for each in made]
        near = [
            are_close(value, other, found.tolerance)
            for other in others
            if other is not None and other.shape == value.shape
        ]
        if near and bool(torch.stack(near).any(0).all()):
            return True
    return False
