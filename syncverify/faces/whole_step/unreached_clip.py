"""A largest norm that no gradient norm reaches: clipping changes nothing, right or wrong."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from syncverify.faces.whole_step.training import Training
from syncverify.judge.whole_step.values import Quantity, RankValues, StepValues


@dataclass(frozen=True, slots=True)
class UnreachedClip:
    """A largest norm that no gradient norm reaches.

    Attributes:
        norm: The largest norm of all steps.
        max_norm: The largest norm that is allowed.
    """

    norm: float
    max_norm: float


def unreached_clip(
    training: Training, ranks: Sequence[RankValues], one_rank: RankValues
) -> UnreachedClip | None:
    """Return the largest norm that no gradient norm reaches; None if one does, or none is known.

    Args:
        training: Model, data, loss and parallelism that the user describes.
        ranks: Values of each rank.
        one_rank: Values of one rank: they have the norm where the code of the user clips.
    """
    of_ranks = [*_pairs(step for each in ranks for step in each.steps)]
    alone = [] if training.clip is None else [*_pairs(one_rank.steps)]
    pairs = of_ranks or alone
    if not pairs or any(not norm < max_norm < math.inf for norm, max_norm in pairs):
        return None
    return UnreachedClip(*max(pairs))


def _pairs(steps: Iterable[StepValues]) -> Iterable[tuple[float, float]]:
    """Yield the norm and the largest norm of each step that torch's clipping was called in."""
    for each in steps:
        norm = each.tensors.get(Quantity.NORM, {}).get("norm")
        if norm is not None and each.max_norm is not None:
            yield float(norm), each.max_norm
