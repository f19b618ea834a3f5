"""Checks of a played training: its values can be compared, and differences are mistakes."""

from collections.abc import Iterable, Iterator, Sequence
from typing import Final

import torch

from syncverify.errors import UsageError
from syncverify.faces.whole_step.data import NotFinite
from syncverify.faces.whole_step.training import Training
from syncverify.judge.whole_step.causes import Clamped, OtherOption, WrongQuantity
from syncverify.judge.whole_step.differences import ComparedValue, OneRank, is_close
from syncverify.judge.whole_step.layout import Layout
from syncverify.judge.whole_step.parts import is_same_batch, rank_part
from syncverify.judge.whole_step.values import Quantity, RankValues, parameter_of

# Quantities in which a mistake of a factor of 2 shows first.
_TELLING: Final = (
    Quantity.GRADIENT,
    Quantity.NORM,
    Quantity.STEPPED,
    Quantity.RETURNED,
    Quantity.PARAMETER,
)


def check_values(
    training: Training, ranks: Sequence[RankValues], one_rank: RankValues
) -> None:
    """Raise UsageError unless there are parameters, gradients and steps to compare."""
    names = dict.fromkeys(name for each in ranks for name in each.start)
    if not {*names} & {*one_rank.start}:
        raise UsageError(
            "no parameter can be compared: parallelize() returns "
            f"{_first(names) or 'no parameters'}, and build() makes {_first(one_rank.start)}"
        )
    _check_numbers(training, one_rank)
    _check_updated(training, one_rank)
    # A scaler may skip all steps, as a mistake of the training.
    if not any(each.scales or each.num_steps for each in ranks):
        raise UsageError(
            "no rank calls step() of a torch.optim.Optimizer in any step; step() of the "
            "training has to make the whole step, with the optimizer's"
        )


def _check_numbers(training: Training, one_rank: RankValues) -> None:
    """Refuse gradients of one rank that are all zero, or no numbers."""
    if isinstance(training.variation, NotFinite):
        return
    kinds = (Quantity.GRADIENT, Quantity.STEPPED)
    found = [
        (name, value)
        for step in one_rank.steps
        for kind in kinds
        for name, value in step.tensors.get(kind, {}).items()
        if value is not None
    ]
    if not any(bool(value.any()) for _, value in found):
        raise UsageError(
            "nothing can be compared: on one rank, no parameter has a gradient, or all are "
            "zero; let the loss depend on the parameters"
        )
    names = dict.fromkeys(n for n, value in found if not bool(value.isfinite().all()))
    if names:
        raise UsageError(
            f"nothing can be compared: on one rank, gradients have NaN or infinity: "
            f"{_first(names)}"
        )


def _check_updated(training: Training, one_rank: RankValues) -> None:
    """Refuse a plain step that updates tensors of the optimizer alone."""
    elsewhere = {name for step in one_rank.steps for name in step.read_elsewhere}
    if (
        training.loss is None
        or not elsewhere
        or isinstance(training.variation, NotFinite)
    ):
        return
    start, last = one_rank.start, one_rank.steps[-1].parameters
    pairs = ((start.get(name), last.get(name)) for name in elsewhere)
    if all(a is not None and b is not None and torch.equal(a, b) for a, b in pairs):
        raise UsageError(
            "the optimizer updates tensors of its own, and its step() leaves the parameters of the "
            "model on one rank as they are; let its step() write the parameters, or leave out "
            "`loss`, so that ranks are compared with your own step on one rank"
        )


def check_draws(one: RankValues, other: RankValues) -> None:
    """Raise UsageError if one rank's values differ where its steps draw other random numbers."""
    for ours, theirs in zip(one.steps, other.steps, strict=True):
        for name, value in ours.parameters.items():
            again = theirs.parameters.get(name)
            if value is None or again is None or torch.equal(value, again):
                continue
            raise UsageError(
                f"the step draws random numbers that change {name}, as dropout does; ranks and "
                "one rank draw others, so nothing can be compared. Set dropout to 0, or draw "
                "the numbers in batch()"
            )


def check_batches(
    training: Training, layout: Layout, ranks: Sequence[RankValues], plain: RankValues
) -> None:
    """Raise UsageError if the batch of a rank is no part of the batch of one rank."""
    if callable(training.split):
        return
    axes = training.split_axes(layout)
    for rank, values in enumerate(ranks):
        place = layout.coordinate(rank)
        for whole, part in zip(plain.batches, values.batches, strict=True):
            if not is_same_batch(rank_part(whole, axes, layout, place), part):
                raise UsageError(
                    f"batch() makes other values on rank {rank} of {layout} than on one rank; "
                    "make the batch of all ranks, which does not depend on the rank: `split` "
                    "says which part each rank gets"
                )


def _first(names: Iterable[str]) -> str:
    listed = [*names]
    return ", ".join(map(repr, listed[:3])) + (", ..." if len(listed) > 3 else "")


def check_plain(
    training: Training, ranks: Sequence[RankValues], found: Sequence[WrongQuantity]
) -> None:
    """Raise UsageError if an own step makes all differences on purpose, as a way of training."""
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


def check_judged(values: Sequence[ComparedValue], reference: OneRank) -> None:
    """Raise UsageError if no value shows a mistake of a factor of 2, or each step is skipped."""
    roundings = reference.roundings
    if roundings is None or any(each.wrong_ranks for each in values):
        return
    if len(reference.skips) == len(reference.values.steps):
        raise UsageError(
            "a value overflows in float16 in each step, and the scaler skips them all; make "
            "more steps, or start with a smaller scale"
        )
    telling = [each for each in values if each.quantity in _TELLING]
    if telling and not any(each.is_judged for each in telling):
        raise UsageError(
            f"rounding of {roundings.names} may be as large as a mistake of a factor "
            "of 2 in all values of this training, so nothing can be judged; compare in a "
            "higher dtype, or with fewer layers or steps"
        )


def check_same_again(
    layout: Layout, ranks: Sequence[RankValues], again: Sequence[RankValues | None]
) -> None:
    """Raise UsageError if two plays of a layout differ: random numbers could explain a mistake."""
    if (where := _first_difference(ranks, again)) is None:
        return
    raise UsageError(
        f"two plays of layout {layout} with the same seed differ (first: {where}), so "
        "they cannot be compared with one rank; draw random numbers from torch's default "
        "generator, or seed yours inside of parallelize() or step()"
    )


def _first_difference(
    ranks: Sequence[RankValues], others: Sequence[RankValues | None]
) -> str | None:
    for rank, (ours, theirs) in enumerate(zip(ranks, others, strict=False)):
        if theirs is None:
            return f"the end of rank {rank}"
        pairs = zip(_named(ours), _named(theirs), strict=False)
        for (name, one), (_, two) in pairs:
            if one is None or two is None:
                is_same = one is two
            else:
                is_same = is_close(one, two, tolerance=0.0)
            if not is_same:
                return f"{name} on rank {rank}"
    return None


def _named(values: RankValues) -> Iterator[tuple[str, torch.Tensor | None]]:
    """Yield all values of a rank, with the words of each."""
    for name, value in values.start.items():
        yield f"{Quantity.START.value} {name}", value
    for index, step in enumerate(values.steps, start=1):
        for quantity, tensors in step.tensors.items():
            for name, value in tensors.items():
                yield f"step {index}, {quantity.value} {name}", value
