"""The values of a mesh, put together as one rank would have them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import torch

from syncverify.judge.whole_step.differences import own_axes
from syncverify.judge.whole_step.layout import Layout, Own
from syncverify.judge.whole_step.values import NamedTensors, RankValues

# Axes that split an ordinary tensor, each with its dimension.
Splits = Sequence[tuple[str, int]]


def as_one_rank(ranks: Sequence[RankValues], layout: Layout, own: Own) -> RankValues:
    """Return the values of all ranks as those of one rank.

    Of copies, the first rank's is taken.

    Args:
        ranks: Values of each rank.
        layout: Names and sizes of the mesh axes.
        own: Axes over which an ordinary tensor of a rank is a shard; a function for one rank alone.

    Returns:
        The values, with the batches of the first rank.
    """
    if layout.num_ranks == 1:
        return ranks[0]
    steps = tuple(
        replace(
            step,
            tensors={
                quantity: _joined(
                    [r.steps[index].tensors.get(quantity, {}) for r in ranks],
                    layout,
                    own,
                )
                for quantity in step.tensors
            },
        )
        for index, step in enumerate(ranks[0].steps)
    )
    return replace(
        ranks[0],
        start=_joined([each.start for each in ranks], layout, own),
        steps=steps,
        frozen=frozenset().union(*(each.frozen for each in ranks)),
    )


def _joined(listed: Sequence[NamedTensors], layout: Layout, own: Own) -> NamedTensors:
    names = dict.fromkeys(name for each in listed for name in each)
    return {
        name: _whole([each.get(name) for each in listed], _splits(name, own), layout)
        for name in names
    }


def _splits(name: str, own: Own) -> Splits:
    return [*own_axes(name, own).items()]


def _whole(
    parts: Sequence[torch.Tensor | None], splits: Splits, layout: Layout
) -> torch.Tensor | None:
    """Return a whole tensor of the parts of all ranks; None where no rank has one."""
    held = [rank for rank, part in enumerate(parts) if part is not None]
    if not held:
        return None
    first = parts[held[0]]
    assert first is not None
    named = [each for each in splits if each[0] in layout.names]
    # A shard that got no token has no gradient.
    filled = [torch.zeros_like(first) if each is None else each for each in parts]
    return _joined_over(
        [e for e in named if first.dim() > e[1]], held[0], filled, layout
    )


def _joined_over(
    splits: Splits, rank: int, parts: Sequence[torch.Tensor], layout: Layout
) -> torch.Tensor:
    if not splits:
        return parts[rank]
    (axis, dim), *rest = splits
    group = layout.group(rank, [axis])
    return torch.cat([_joined_over(rest, each, parts, layout) for each in group], dim)
