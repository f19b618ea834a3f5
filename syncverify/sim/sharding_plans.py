"""A cache of DTensor's sharding plans for a few ops, shared by all ranks and runs.

Before DTensor runs an op, it searches for placements of inputs and output. The search takes
milliseconds, and DTensor caches the plan per thread. Simulated ranks are threads that end
with their run, so each rank would search anew; that was half of the time of a run.

Note [What may be remembered]
    A plan without redistribution depends on two facts: DTensor's specs of the whole tensors
    (global shape, stride, dtype, placements), and the layout of the mesh. It depends on no
    rank and no run, or ranks would disagree on the output of an op. Only the mesh *object*
    of the output, with its process groups, belongs to one rank of one run. So plans are
    cached without a mesh, and get the mesh of the inputs, as torch's own plan does.
    `detach` needs no plan: its output has the placements of its input.
    All other cases go to torch every time: other ops, plans that redistribute an input or
    rewrite an argument (local shapes depend on the rank), and several meshes.

The only module that touches the private parts of DTensor's dispatcher. It relies on the
dispatcher to look `propagate_op_sharding_non_cached` up on the propagator whenever its own
caches miss, and a test says so.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import torch
from torch.distributed.device_mesh import DeviceMesh
from torch.distributed.tensor import DTensor, Placement
from torch.distributed.tensor._dtensor_spec import (
    DTensorSpec,
    ShardOrder,
    TensorMeta,
)
from torch.distributed.tensor._op_schema import OpSchema, OutputSharding

# The ops that autograd and `nn.Parameter` issue in every rank program.
_OPS = frozenset(
    {
        torch.ops.aten.add_.Tensor,
        torch.ops.aten.copy_.default,
        torch.ops.aten._to_copy.default,  # noqa: SLF001  # the name of the op
    }
)
# Most searches were for `detach`, and all of them returned the input's placements.
_DETACH = torch.ops.aten.detach.default
_MAX_PLANS = 10_000  # about 10 MB; a search may go on for days


@dataclass(frozen=True, slots=True)
class _Plan:
    """The output of an op that needs no redistribution, without its mesh."""

    placements: tuple[Placement, ...]
    tensor_meta: TensorMeta | None
    shard_order: ShardOrder

    def on(self, mesh: DeviceMesh) -> OutputSharding:
        """Return the plan as torch states it, with new specs, since specs are mutable."""
        return OutputSharding(
            DTensorSpec(mesh, self.placements, self.tensor_meta, self.shard_order)
        )


_PLANS: dict[Hashable, _Plan] = {}


@contextmanager
def remembered_plans() -> Iterator[None]:
    """Let DTensor remember plans across threads for the length of a block."""
    propagator: Any = DTensor._op_dispatcher.sharding_propagator  # noqa: SLF001
    work_out = propagator.propagate_op_sharding_non_cached
    propagator.propagate_op_sharding_non_cached = remembering(work_out, _PLANS)
    try:
        yield
    finally:
        propagator.propagate_op_sharding_non_cached = work_out


def remembering(
    work_out: Callable[[OpSchema], OutputSharding], plans: dict[Hashable, _Plan]
) -> Callable[[OpSchema], OutputSharding]:
    """Wrap DTensor's search, with the plans so far; see Note [What may be remembered]."""

    def propagate(schema: OpSchema) -> OutputSharding:
        if schema.op is _DETACH:
            return _as_given(schema.args_spec[0]) or work_out(schema)
        mesh = _only_mesh(schema) if schema.op in _OPS else None
        if mesh is None:
            return work_out(schema)
        key = _key(schema, mesh)
        try:
            known = plans.get(key)
        except TypeError:  # sizes that a compiler traces symbolically have no hash
            return work_out(schema)
        if known is not None:
            return known.on(mesh)
        result = work_out(schema)
        if (plan := _without_mesh(result, mesh)) is not None:
            if len(plans) >= _MAX_PLANS:
                plans.clear()
            plans[key] = plan
        return result

    return propagate


def _as_given(spec: DTensorSpec) -> OutputSharding | None:
    plan = _plan_of(spec)
    return None if plan is None else plan.on(spec.mesh)


def _only_mesh(schema: OpSchema) -> DeviceMesh | None:
    """Return the mesh object of all inputs; None if they have several."""
    meshes = {id(spec.mesh): spec.mesh for spec in schema.args_spec}
    return next(iter(meshes.values())) if len(meshes) == 1 else None


def _key(schema: OpSchema, mesh: DeviceMesh) -> Hashable:
    args = tuple(
        (arg.placements, arg.tensor_meta, arg.shard_order)
        if isinstance(arg, DTensorSpec)
        else arg
        for arg in schema.args_schema
    )
    layout = mesh._hash_key()  # noqa: SLF001  # torch compares meshes by it
    return (schema.op, layout, args, tuple(schema.kwargs_schema.items()))


def _without_mesh(result: OutputSharding, mesh: DeviceMesh) -> _Plan | None:
    """Return the part of a result that may be cached; None if no part may."""
    spec: Any = result.output_spec
    if result.redistribute_schema is not None or not isinstance(spec, DTensorSpec):
        return None
    return _plan_of(spec) if spec.mesh is mesh else None


def _plan_of(spec: DTensorSpec) -> _Plan | None:
    if spec.use_strided_shard_as_shard_order:
        return None
    return _Plan(spec.placements, spec.tensor_meta, spec.shard_order)
