"""The ranks over which a gradient is spread, for a norm that counts each element once.

    gradient                                        elements counted
    replicated                                      once, as it is whole on every rank
    sharded over some ranks                         those of all its shards
    scattered sums                                  those of all ranks that summed it
    ordinary, summed over a process group           once, as it is replicated
    ordinary, not summed                            on its own rank only

A model with ordinary parameters that are not summed has another norm on each rank.
"""

from collections.abc import Iterator
from dataclasses import dataclass

from torch.distributed.tensor import DTensor

from syncverify.synchronizer.plan.grouping import BucketPlan, ParameterPlan
from syncverify.synchronizer.plan.ownership import owned_part
from syncverify.synchronizer.ranks.scope import ReduceScope, mesh_scope, shard_axes


@dataclass(frozen=True, slots=True)
class NormRun:
    """A run of owned elements whose gradients are spread over the same ranks.

    Attributes:
        scope: The ranks; None where the rank is alone.
        elements: Indices into the flat buffer. May be empty where other ranks own them.
    """

    scope: ReduceScope | None
    elements: range


def norm_runs(plan: BucketPlan, owned: range) -> tuple[NormRun, ...]:
    """Return the runs of the owned part of a bucket, in its order, without flags."""
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
