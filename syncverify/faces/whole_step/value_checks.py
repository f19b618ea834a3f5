"""Checks of a played training, before its values are compared."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import torch

from syncverify.errors import UsageError
from syncverify.faces.whole_step.data import NotFinite
from syncverify.faces.whole_step.training import Training
from syncverify.judge.whole_step.batches import is_same_batch, rank_part
from syncverify.judge.whole_step.layout import Layout
from syncverify.judge.whole_step.values import Quantity, RankValues


def check_values(
    training: Training, ranks: Sequence[RankValues], one_rank: RankValues
) -> None:
    """Check that there are values to compare.

    Raises:
        UsageError: No parameter has a name that build() gives, no optimizer steps, or all gradients
            of one rank are zero, or some are no numbers.
    """
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
    """Check that one rank has gradients, and that they are numbers."""
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
    """Check that the plain step updates the model, and not tensors of the optimizer alone."""
    elsewhere = {name for step in one_rank.steps for name in step.read_elsewhere}
    if (
        training.loss is None
        or not elsewhere
        or isinstance(training.variation, NotFinite)
    ):
        return
    last = one_rank.steps[-1].tensors[Quantity.PARAMETER]
    start = one_rank.start
    pairs = ((start.get(name), last.get(name)) for name in elsewhere)
    if all(a is not None and b is not None and torch.equal(a, b) for a, b in pairs):
        raise UsageError(
            "the optimizer updates tensors of its own, and its step() leaves the parameters of the "
            "model on one rank as they are; let its step() write the parameters, or leave out "
            "`loss`, so that ranks are compared with your own step on one rank"
        )


def check_draws(one: RankValues, other: RankValues) -> None:
    """Check that a training on one rank does not depend on random numbers of its steps.

    Args:
        one: Values of the training.
        other: Its values where steps draw other numbers.

    Raises:
        UsageError: It does.
    """
    for ours, theirs in zip(one.steps, other.steps, strict=True):
        for name, value in ours.tensors[Quantity.PARAMETER].items():
            again = theirs.tensors[Quantity.PARAMETER].get(name)
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
    """Check that ranks train on parts of the batch of one rank.

    Raises:
        UsageError: The batch of a rank is no part of it.
    """
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
