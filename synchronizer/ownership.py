"""Which part of a bucket holds right gradients on this rank once it is reduced.

After an all-reduce every rank owns the whole buffer. After a reduce-scatter each rank
owns one of as many equal parts as there are ranks, which cuts parameters anywhere.
Buckets that stay local are owned whole.
"""

from collections.abc import Iterator
from dataclasses import dataclass

import torch
from torch import nn

from .grouping import BucketPlan, ParameterPlan
from .process_groups import ReductionGroups


@dataclass(frozen=True, slots=True, eq=False)
class OwnedGradient:
    """A run of elements of one parameter's gradient that this rank owns.

    Elements are counted in the order in which they lie in memory. Of a dense parameter,
    channels-last ones included, the same elements are
    `local.as_strided((n,), (1,), local.storage_offset() + start_numel)`, where `local`
    is the parameter, or `to_local()` of a DTensor, and n the number of `values`.

    Attributes:
        parameter: Whose gradient it is.
        name: As in messages.
        start_numel: Where the run starts in the flattened local gradient, in elements.
        values: Shape (n,), n at least 1; a view of the bucket's memory.
    """

    parameter: nn.Parameter
    name: str
    start_numel: int
    values: torch.Tensor


def owned_range(plan: BucketPlan, groups: ReductionGroups) -> range:
    """Find the elements of a bucket that this rank owns.

    Args:
        plan: Of the bucket.
        groups: Where to find its process group.

    Returns:
        Indices into the flat buffer.
    """
    if plan.scope is None or plan.num_shards == 1:
        return range(plan.buffer_numel)
    numel = plan.buffer_numel // plan.num_shards
    start_numel = groups.get(plan.scope).rank() * numel
    return range(start_numel, start_numel + numel)


def owned_part(member: ParameterPlan, offset_numel: int, owned: range) -> range:
    """Find the elements of a member that this rank owns.

    Args:
        member: Of a bucket.
        offset_numel: Where in the buffer it starts.
        owned: Indices into the flat buffer.

    Returns:
        Those that are the member's; an empty range inside of `owned` if there are none.
    """
    start = min(max(offset_numel, owned.start), owned.stop)
    stop = min(offset_numel + member.local_numel, owned.stop)
    return range(start, max(start, stop))


def owned_gradients(
    plan: BucketPlan, buffer: torch.Tensor, owned: range
) -> Iterator[OwnedGradient]:
    """Yield what this rank owns of each member of a bucket.

    Args:
        plan: Of the bucket.
        buffer: Shape (N,), reduced.
        owned: Indices into the buffer.

    Yields:
        Views of the buffer, in its order.
    """
    for member, offset in zip(plan.members, plan.offsets_numel, strict=True):
        if found := owned_part(member, offset, owned):
            values = buffer[found.start : found.stop]
            yield OwnedGradient(
                member.parameter, member.name, found.start - offset, values
            )
