"""Over which ranks the parts of a gradient are spread, so that a norm counts each once.

A replicated gradient is whole on every rank and counts once; one that is sharded over
some ranks counts with all its shards. Where sums are scattered to owners, a gradient is
spread over the ranks that summed it, too. A plain parameter that is summed over a
process group is replicated; one that is not summed counts on its own rank only, so a
model with such parameters has another norm on each rank.
"""

from collections.abc import Iterator
from dataclasses import dataclass

from torch.distributed.tensor import DTensor

from .grouping import BucketPlan, ParameterPlan
from .ownership import owned_part
from .scope import ReduceScope, mesh_scope, shard_axes


@dataclass(frozen=True, slots=True)
class NormRun:
    """Neighbours in a bucket whose gradients are spread over the same ranks.

    Attributes:
        scope: Those ranks; None where this rank has all of each gradient.
        elements: Indices into the flat buffer, all owned by this rank; perhaps none,
            where others own some.
    """

    scope: ReduceScope | None
    elements: range


def norm_runs(plan: BucketPlan, owned: range) -> tuple[NormRun, ...]:
    """Cut what this rank owns of a bucket into runs.

    Args:
        plan: Of the bucket.
        owned: Indices into its flat buffer.

    Returns:
        In the buffer's order; together all gradients, and no flags.
    """
    runs: list[NormRun] = []
    for run in _members(plan, owned):
        if runs and runs[-1].scope == run.scope:
            # The padding between neighbours is zero.
            elements = range(runs[-1].elements.start, run.elements.stop)
            runs[-1] = NormRun(run.scope, elements)
        else:
            runs.append(run)
    return tuple(runs)


def _members(plan: BucketPlan, owned: range) -> Iterator[NormRun]:
    for member, offset in zip(plan.members, plan.offsets_numel, strict=True):
        yield NormRun(_spread(member, plan), owned_part(member, offset, owned))


def _spread(member: ParameterPlan, plan: BucketPlan) -> ReduceScope | None:
    parameter = member.parameter
    is_scattered = plan.num_shards > 1
    if not isinstance(parameter, DTensor):
        return plan.key.scope if is_scattered else None
    mesh = parameter.device_mesh
    summed = member.reduce_axes if is_scattered else ()
    return mesh_scope(mesh, (*shard_axes(mesh, parameter.placements), *summed))
