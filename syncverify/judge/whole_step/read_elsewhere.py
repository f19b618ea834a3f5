"""Wrong gradients of parameters that optimizers update from other tensors, beside another mistake.

With a flat slice, a rank's gradients may stay unreduced: the slice has the reduced ones. If a parameter is
wrong, its gradient may still be the mistake, when the slice took it. Then each element of the parameter is what
the optimizer makes of the gradient of some rank. Otherwise no parameter depends on that gradient.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch

from syncverify.judge.whole_step.differences import ComparedValue
from syncverify.judge.whole_step.mesh_play import MeshPlay
from syncverify.judge.whole_step.values import Quantity, RankValues

_GRADIENTS = (Quantity.GRADIENT, Quantity.STEPPED)


def is_read_elsewhere(
    value: ComparedValue, ranks: Sequence[RankValues], first_step: int = 0
) -> bool:
    """Tell whether optimizers of all wrong ranks may read other gradients than a wrong one.

    Args:
        value: The value.
        ranks: Values of each rank.
        first_step: Number of their first step.

    Returns:
        Whether no wrong rank is known to read it.
    """
    return value.quantity in _GRADIENTS and all(
        value.name in ranks[rank].steps[value.step - first_step].read_elsewhere
        for rank in value.wrong_ranks
    )


def read_elsewhere(
    values: Sequence[ComparedValue], play: MeshPlay
) -> list[ComparedValue]:
    """Return the wrong gradients that no optimizer reads, by the parameters after the step.

    Args:
        values: All compared values.
        play: The training on a mesh.
    """
    off = {e.name for e in values if e.quantity is Quantity.PARAMETER and e.wrong_ranks}
    wrong = [
        each
        for each in values
        if each.name in off and each.wrong_ranks
        if is_read_elsewhere(each, play.ranks)
    ]
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
        if not _is_made(
            parameter,
            [of[each.step][Quantity.PARAMETER].get(each.name) for of in made],
        )
    ]


def _is_made(found: ComparedValue, made: Sequence[torch.Tensor | None]) -> bool:
    """Tell whether each element of a rank's parameter is what the optimizer makes on some rank."""
    return any(
        bool(
            torch.stack([_is_same(value, m, found.tolerance) for m in made])
            .any(0)
            .all()
        )
        for value in found.got.values()
        if value is not None
    )


def _is_same(
    value: torch.Tensor, made: torch.Tensor | None, tolerance: float
) -> torch.Tensor:
    """Return which elements are close."""
    if made is None or made.shape != value.shape:
        return torch.zeros_like(value, dtype=torch.bool)
    return (value.double() - made.double()).abs() <= tolerance
