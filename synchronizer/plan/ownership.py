"""The part of a reduced bucket that holds valid gradients on this rank.

After an all-reduce every rank owns the whole buffer. After a reduce-scatter each rank
owns one of as many equal parts as there are ranks, and a part may start or end inside a
parameter. Buckets that stay local are owned completely.
"""

from collections.abc import Iterator
from dataclasses import dataclass

import torch
from torch import nn

from syncverify.synchronizer.plan.grouping import BucketPlan, ParameterPlan
from syncverify.synchronizer.ranks.process_groups import ReductionGroups


@dataclass(frozen=True, slots=True, eq=False)
class OwnedGradient:
    """A run of elements of one parameter's gradient that this rank owns.

    Elements are counted in the order in which they lie in memory. The same elements of a dense
    parameter, channels-last ones included, are
    `local.as_strided((n,), (1,), local.storage_offset() + start_numel)`, where `local`
    is the parameter, or `to_local()` of a DTensor, and n the number of `values`.

    Attributes:
        parameter: Parameter of the gradient.
        name: Name of the parameter, as in messages.
        start_numel: Start of the run in the flattened local gradient, in elements.
        values: Shape (n,), n at least 1; a view of the bucket's memory.
    """

    parameter: nn.Parameter
    name: str
    start_numel: int
    values: torch.Tensor


def owned_range(plan: BucketPlan, groups: ReductionGroups) -> range:
    """Return the indices into the flat buffer that this rank owns."""
    if plan.scope is None or plan.num_shards == 1:
        return range(plan.buffer_numel)
    numel = plan.buffer_numel // plan.num_shards
    start_numel = groups.get(plan.scope).rank() * numel
    return range(start_numel, start_numel + numel)


def owned_part(member: ParameterPlan, offset_numel: int, owned: range) -> range:
    """Return the indices of a member's owned elements, a range inside of `owned`."""
    start = min(max(offset_numel, owned.start), owned.stop)
    stop = min(offset_numel + member.local_numel, owned.stop)
    return range(start, max(start, stop))


def owned_gradients(
    plan: BucketPlan, buffer: torch.Tensor, owned: range
) -> Iterator[OwnedGradient]:
    """Yield the owned part of each member of a reduced bucket, as views of `buffer`."""
    for member, offset in zip(plan.members, plan.offsets_numel, strict=True):
        if found := owned_part(member, offset, owned):
            values = buffer[found.start : found.stop]
            yield OwnedGradient(
                member.parameter, member.name, found.start - offset, values
            )
