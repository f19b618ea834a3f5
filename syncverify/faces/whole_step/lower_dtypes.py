"""A training in lower dtypes: the values to compare with, and those that cannot be judged."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace
from typing import Final

from syncverify.errors import UsageError
from syncverify.faces.simulation.program import Device
from syncverify.faces.whole_step.playing import lower_reference, reference_of
from syncverify.faces.whole_step.training import Training
from syncverify.judge.whole_step.differences import ComparedValue, OneRank
from syncverify.judge.whole_step.layout import Layout
from syncverify.judge.whole_step.lower_noise import pairs_of_noises
from syncverify.judge.whole_step.rounding import Roundings
from syncverify.judge.whole_step.values import Quantity, RankValues

# Quantities in which a mistake of a factor of 2 shows first.
_TELLING: Final = (
    Quantity.GRADIENT,
    Quantity.NORM,
    Quantity.STEPPED,
    Quantity.RETURNED,
    Quantity.PARAMETER,
)


def reference_in_lower_dtypes(
    training: Training,
    layout: Layout,
    ranks: Sequence[RankValues],
    roundings: Roundings,
    device: Device,
) -> OneRank:
    """Return the values of one rank with the bounds of lower dtypes.

    Args:
        training: Model, data, loss and parallelism that the user describes.
        layout: Names and sizes of the mesh axes.
        ranks: Values of each rank.
        roundings: How the training rounds on the mesh.
        device: Device that torch names to the program.

    Returns:
        The values.

    Raises:
        UsageError: A gradient overflows, and there is no scaler; or a step does not end.
    """
    if training.loss is None:
        own = reference_of(training, layout, device, pairs_of_noises(roundings))
        return replace(own, roundings=roundings)
    return lower_reference(training, roundings, device, _skips(ranks))


def _skips(ranks: Sequence[RankValues]) -> frozenset[int]:
    """Return the steps that a scaler skips on a rank, since a value overflows on one.

    Raises:
        UsageError: A gradient overflows, and there is no scaler.
    """
    overflows = sorted({step for each in ranks for step in each.overflows})
    if not any(each.scales for each in ranks):
        for step in overflows:
            if not all(map(_is_finite, ranks, [step] * len(ranks))):
                raise UsageError(
                    f"a gradient overflows in float16 in step {step + 1}, on the mesh; give "
                    "a `scaler`, or values of another size"
                )
        return frozenset()
    return frozenset(
        step for step in overflows if not all(_num_steps(each, step) for each in ranks)
    )


def _is_finite(rank: RankValues, step: int) -> bool:
    gradients = rank.steps[step].tensors[Quantity.GRADIENT].values()
    return all(each is None or bool(each.isfinite().all()) for each in gradients)


def _num_steps(values: RankValues, step: int) -> float:
    number = values.steps[step].tensors[Quantity.SKIPPED]["steps"]
    assert number is not None
    return float(number)


def check_judged(values: Iterable[ComparedValue], reference: OneRank) -> None:
    """Check that a mistake of a factor of 2 would be seen in some value.

    Args:
        values: All compared values.
        reference: Values of one rank, with the bounds of lower dtypes.

    Raises:
        UsageError: It would be seen in none and no value is wrong, or the scaler skips each step.
    """
    values, roundings = [*values], reference.roundings
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
