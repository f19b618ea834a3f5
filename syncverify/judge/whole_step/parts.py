"""The parts of tensors and batches that each rank has, and the whole of all parts."""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from fnmatch import fnmatchcase
from typing import Any

import torch
from torch.utils._pytree import tree_flatten, tree_leaves, tree_map, tree_map_only

from syncverify.calling import call
from syncverify.errors import UsageError
from syncverify.judge.whole_step.layout import Layout, Own
from syncverify.judge.whole_step.values import (
    ByRank,
    NamedTensors,
    RankValues,
    StepValues,
    parameter_of,
)


def own_axes(name: str, own: Own) -> Mapping[str, int]:
    """Return the axes over which an ordinary tensor is split, with their dimensions."""
    if callable(own):
        return {}
    parameter = parameter_of(name)
    return next((axes for key, axes in own.items() if fnmatchcase(parameter, key)), {})


def pieces(
    name: str,
    value: torch.Tensor,
    got: ByRank,
    *,
    layout: Layout,
    own: Own,
) -> dict[int, torch.Tensor]:
    """Return the part of a whole tensor of each rank that has a value, or should have one.

    Raises:
        UsageError: A rank's tensor has another shape, and nothing says why.
    """
    axes, sizes = own_axes(name, own), dict(layout.axes)
    parts = dict[int, torch.Tensor]()
    for rank, mine in got.items():
        parts[rank] = value
        if mine is not None and mine.shape == value.shape and not axes:
            continue
        place = layout.coordinate(rank)
        if callable(own):
            given = {"name": name, "whole": value, "coordinate": place, "sizes": sizes}
            parts[rank] = call(own, given)
        for axis, dim in axes.items():
            if axis in sizes and parts[rank].dim() > dim:
                parts[rank] = parts[rank].chunk(sizes[axis], dim)[place[axis]]
        # A shard that got no token has no gradient: then its part of the whole one is zero.
        if mine is not None and parts[rank].shape != mine.shape:
            raise UsageError(
                f"{name} has shape {tuple(mine.shape)} on rank {rank} of {layout}, and "
                f"{tuple(parts[rank].shape)} was expected; say in `own` which axis splits it, "
                f"such as own={{{name!r}: {{'ep': 0}}}}"
            )
    return parts


def as_one_rank(ranks: Sequence[RankValues], layout: Layout, own: Own) -> RankValues:
    """Return the values of all ranks as those of one rank, with the batches of the first one.

    Of copies, the first rank's is taken. A function `own` has no reverse, and is for one rank alone.
    """
    if layout.num_ranks == 1:
        return ranks[0]

    def joined(listed: Sequence[NamedTensors]) -> NamedTensors:
        names = dict.fromkeys(name for each in listed for name in each)
        return {
            name: _whole(name, [each.get(name) for each in listed], layout, own)
            for name in names
        }

    steps = list[StepValues]()
    for i, step in enumerate(ranks[0].steps):
        whole = {q: joined([r.tensors(q, i) for r in ranks]) for q in step.tensors}
        steps.append(replace(step, tensors=whole))
    return replace(
        ranks[0],
        start=joined([each.start for each in ranks]),
        steps=tuple(steps),
        frozen=frozenset().union(*(each.frozen for each in ranks)),
    )


def _whole(
    name: str, parts: Sequence[torch.Tensor | None], layout: Layout, own: Own
) -> torch.Tensor | None:
    """Return a whole tensor of the parts of all ranks; None where no rank has one."""
    held = next((rank for rank, part in enumerate(parts) if part is not None), None)
    if held is None or (first := parts[held]) is None:
        return None
    # A shard that got no token has no gradient.
    filled = [torch.zeros_like(first) if each is None else each for each in parts]
    splits = [
        (axis, dim)
        for axis, dim in own_axes(name, own).items()
        if axis in layout.names and first.dim() > dim
    ]

    for axis, dim in reversed(splits):
        groups = [layout.group(rank, [axis]) for rank in range(len(filled))]
        filled = [torch.cat([filled[each] for each in e], dim) for e in groups]
    return filled[held]


def rank_part(
    batch: Any, dims: Mapping[str, int], layout: Layout, coordinate: Mapping[str, int]
) -> Any:
    """Return a rank's part of a batch: tensors in lists, tuples and dicts, for all ranks.

    `dims` has the axes over which the batch is split, with the dimension of each.

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
    return tree_map_only(torch.Tensor, lambda leaf: leaf.detach().clone(), batch)


def is_same_batch(one: Any, two: Any) -> bool:
    """Tell whether two batches are equal."""
    (ours, spec), (theirs, other_spec) = tree_flatten(one), tree_flatten(two)
    return spec == other_spec and all(map(_is_equal, ours, theirs))


def _is_equal(one: object, two: object) -> bool:
    if isinstance(one, torch.Tensor) and isinstance(two, torch.Tensor):
        return torch.equal(one, two)
    return one is two or one == two
