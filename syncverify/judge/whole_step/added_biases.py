"""A bias that each rank of an axis adds to its part of a sum.

A layer that splits its inputs over ranks adds up their outputs. A bias that is no shard belongs to
the sum: if each rank adds it before, it counts once a rank. Then no gradient is a sum of right
parts. So one rank plays the step with a larger bias, and has the wrong gradients if this is why.
"""

from __future__ import annotations

import itertools
import re
from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import Final

from syncverify.errors import UsageError
from syncverify.judge.whole_step.causes import AddedBias
from syncverify.judge.whole_step.differences import ComparedValue
from syncverify.judge.whole_step.mesh_play import MeshPlay
from syncverify.judge.whole_step.values import NamedTensors

# Each guess costs a forward and a backward of one rank.
_MAX_PLAYS: Final = 32


def added_bias(
    wrong: Sequence[ComparedValue], play: MeshPlay, start: NamedTensors
) -> AddedBias | None:
    """Return the biases that are added once a rank, where this gives all wrong gradients.

    The parameters are those before the step of the gradients.
    """
    if not play.has_loss:
        return None
    for cause in itertools.islice(_tried(play, wrong[0].step, start), _MAX_PLAYS):
        size = play.layout.size(cause.axes)
        larger = {
            name: value * size
            for name, value in start.items()
            if name in cause.names and value is not None
        }
        if _gives(wrong, play, {**start, **larger}):
            return cause
    return None


def _tried(play: MeshPlay, step: int, start: NamedTensors) -> Iterator[AddedBias]:
    """Yield biases whose names differ in numbers alone, pairs of such groups, then each bias."""
    split_over = play.squares(step).split_over
    for axis in play.layout.names:
        names = [
            name
            for name, value in start.items()
            if value is not None and value.dim() == 1 and bool(value.any())
            if play.layout.size([axis]) > 1 and axis not in split_over.get(name, ())
        ]
        # Weights of norms have one dimension too.
        names.sort(key=lambda name: "bias" not in name)
        alike = dict[str, tuple[str, ...]]()
        for name in names:
            key = re.sub(r"\d+", "", name)
            alike[key] = (*alike.get(key, ()), name)
        groups = [*alike.values()]
        pairs = (a + b for a, b in itertools.combinations(groups, 2))
        for listed in dict.fromkeys([*groups, *pairs, *((name,) for name in names)]):
            yield AddedBias(listed, frozenset({axis}))


def _gives(wrong: Sequence[ComparedValue], play: MeshPlay, start: NamedTensors) -> bool:
    """Tell whether one rank has the wrong gradients if it starts with some parameters."""
    step = wrong[0].step
    batch = play.reference.values.batches[step]
    try:
        found = play.gradients_of([batch], step, start)
    except UsageError:
        return False
    (gradients,) = found.parts
    for each in wrong:
        if each.name not in gradients:
            return False
        expected = play.pieces(each, gradients[each.name])
        if replace(each, expected=expected).wrong_ranks:
            return False
    return True
