"""The part of a batch that each rank trains on."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch
from torch.utils._pytree import tree_flatten, tree_leaves, tree_map

from syncverify.errors import UsageError
from syncverify.judge.whole_step.layout import Layout


def rank_part(
    batch: Any, dims: Mapping[str, int], layout: Layout, coordinate: Mapping[str, int]
) -> Any:
    """Return a rank's part of a batch.

    Args:
        batch: Tensors in lists, tuples and dicts, for all ranks.
        dims: Axes over which the batch is split, with the dimension of each.
        layout: Sizes of the axes.
        coordinate: The rank's place on each axis.

    Raises:
        UsageError: A dimension cannot be divided.
    """
    sizes = dict(layout.axes)
    for axis, dim in dims.items():
        place, size = coordinate[axis], sizes[axis]
        batch = tree_map(lambda leaf: _part(leaf, dim, size, place, axis), batch)  # noqa: B023
    return batch


def micro_batches(batch: Any, number: int) -> list[Any]:
    """Return the parts of a rank's batch, by rows.

    Raises:
        UsageError: The rows cannot be divided.
    """
    if number == 1:
        return [batch]
    return [
        tree_map(lambda leaf: _part(leaf, 0, number, index, "micro-batches"), batch)  # noqa: B023
        for index in range(number)
    ]


def _part(leaf: Any, dim: int, size: int, place: int, axis: str) -> Any:
    if not isinstance(leaf, torch.Tensor) or leaf.dim() <= dim:
        return leaf
    if leaf.shape[dim] % size:
        raise UsageError(
            f"dimension {dim} of a tensor of the batch has size {leaf.shape[dim]}, which "
            f"{size} parts ({axis}) do not divide; make another batch, or say in `split` how"
        )
    return leaf.chunk(size, dim)[place]


def num_rows(batch: Any) -> int:
    """Return the number of rows of a batch."""
    tensors = [each for each in tree_leaves(batch) if isinstance(each, torch.Tensor)]
    return max((len(each) for each in tensors if each.dim()), default=0)


def copy_of(batch: Any) -> Any:
    """Return a copy of a batch: a step may change its batch in place."""
    return tree_map(
        lambda leaf: leaf.detach().clone() if isinstance(leaf, torch.Tensor) else leaf,
        batch,
    )


def is_same_batch(one: Any, two: Any) -> bool:
    """Tell whether two batches are equal."""
    (ours, spec), (theirs, other_spec) = tree_flatten(one), tree_flatten(two)
    return spec == other_spec and all(map(_is_equal, ours, theirs))


def _is_equal(one: object, two: object) -> bool:
    if isinstance(one, torch.Tensor) and isinstance(two, torch.Tensor):
        return torch.equal(one, two)
    return one is two or one == two
