"""Answers to DTensor's search for sharding plans, where the answer is obvious.

Before DTensor runs an op, it searches for placements of inputs and output. The search takes
milliseconds, and DTensor caches the plan per thread. Simulated ranks are threads that end
with their run, so each rank would search anew; that was half of the time of a run.

Note [Obvious plans]
    The ops that autograd and `nn.Parameter` issue in every rank program are `detach`, sums
    and copies in place, and conversions. Where all inputs have one shape and one layout, and
    none is partial but by sum or mean, nothing is redistributed, and the output lies as the
    first input does. All other cases go to torch: other ops, other layouts, several meshes.

Note [Known plans]
    A plan that torch has searched is kept for the process, and other ranks and runs get it with
    their own mesh. Its key has all that the search reads: the op with its rules, the shape of
    the one mesh, layouts, and all other arguments with their types. Left to torch are plans that
    redistribute or that have sizes of a rank's part, several meshes, and arguments that are no
    plain values.

Note [Plans of a rank]
    DTensor caches how a tensor is redistributed, by mesh and layout. Such a plan has sizes of the
    rank's own part, which differ where a dimension does not divide evenly. Meshes of two ranks
    are equal, so with one cache for the process a rank would follow the plan of another one.
    Each rank of a job has a cache of its own, and so has each simulated rank.

The only module that touches the propagator of DTensor's dispatcher. It relies on the
dispatcher to look `propagate_op_sharding_non_cached` up on the propagator whenever its own
caches miss, and a test says so.
"""

import functools
import operator
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, Final
from unittest.mock import patch

import torch
from torch.distributed.device_mesh import DeviceMesh
from torch.distributed.tensor import DTensor, Partial, Replicate, Shard, _redistribute
from torch.distributed.tensor._collective_utils import MeshTopoInfo
from torch.distributed.tensor._dtensor_spec import DTensorSpec, TensorMeta
from torch.distributed.tensor._op_schema import OpSchema, OutputSharding

from syncverify.sim.turns.scheduler import own_rank

_IN_PLACE = frozenset({torch.ops.aten.add_.Tensor, torch.ops.aten.copy_.default})
_TO_COPY = torch.ops.aten._to_copy.default  # noqa: SLF001  # the name of the op
_DETACH = torch.ops.aten.detach.default
_SEARCH = "propagate_op_sharding_non_cached"


def _propagator() -> Any:
    return DTensor._op_dispatcher.sharding_propagator  # noqa: SLF001


@contextmanager
def obvious_plans() -> Iterator[None]:
    """Spare DTensor the search for obvious plans for the length of a block.

    Each rank has its own plans of redistribution; see Note [Plans of a rank].
    """
    propagator = _propagator()
    search = knowing_obvious_plans(getattr(propagator, _SEARCH))
    plan = _of_each_rank(_redistribute._gen_transform_infos_non_cached)  # noqa: SLF001
    planner = _of_each_rank(_redistribute.DTensorRedistributePlanner)
    try:
        with (
            patch.object(propagator, _SEARCH, search),
            patch.object(_redistribute, "_gen_transform_infos", plan),
            patch.object(_redistribute, "get_redistribute_planner", planner),
        ):
            yield
    finally:
        # The cache has no bound, and a mesh in a key keeps the process groups and the trace of
        # its run. A mesh belongs to one run, so no other run finds it.
        MeshTopoInfo.build_from_mesh.cache_clear()


def _of_each_rank(make: Callable[..., Any]) -> Callable[..., Any]:
    """Return a function that keeps its results, by rank."""

    @functools.cache
    def by_rank(_rank: int | None, *args: Any, **kwargs: Any) -> Any:
        return make(*args, **kwargs)

    def found(*args: Any, **kwargs: Any) -> Any:
        return by_rank(own_rank(), *args, **kwargs)

    return found


def knowing_obvious_plans(
    work_out: Callable[[OpSchema], OutputSharding],
) -> Callable[[OpSchema], OutputSharding]:
    """Wrap DTensor's search; see Note [Obvious plans] and Note [Known plans]."""

    def propagate(schema: OpSchema) -> OutputSharding:
        spec = _obvious_output(schema) or _known_output(schema)
        if spec is not None:
            return OutputSharding(spec)
        found = work_out(schema)
        _keep(schema, found)
        return found

    return propagate


# The rules of the op, as a plan was found, and the arguments of `DTensorSpec` after the mesh.
_KNOWN_PLANS: dict[tuple[Any, ...], tuple[tuple[Any, ...], tuple[Any, ...]]] = {}
_MAX_KNOWN_PLANS: Final = 4096
# Others, such as that of an embedding, hold values of the tensor. Strided shards are rare.
_PLAIN_PLACEMENTS: Final = (Replicate, Shard, Partial)
_PLAIN_VALUES: Final = (
    *(bool, int, float, str, type(None)),
    *(torch.dtype, torch.device, torch.layout, torch.memory_format),
)


class _OtherValueError(Exception):
    """An argument is no plain value, or lies on a second mesh."""


def _known_output(schema: OpSchema) -> DTensorSpec | None:
    """Return the layout of the output, if an equal op on an equal mesh has been searched."""
    mesh = _mesh_of(schema)
    if mesh is None:
        return None
    rules, fields = _KNOWN_PLANS.get(_key_of(schema, mesh) or (), (None, ()))
    if rules is None or not all(map(operator.is_, rules, _rules_of(schema.op))):
        return None
    return DTensorSpec(mesh, *fields)


def _keep(schema: OpSchema, found: OutputSharding) -> None:
    """Keep a plan that another rank or run may follow."""
    mesh: DeviceMesh | None = _mesh_of(schema)
    spec: Any = found.output_spec
    if found.redistribute_schema is not None or found.needs_redistribute:
        return
    key = None if mesh is None else _key_of(schema, mesh)
    if key is None or not isinstance(spec, DTensorSpec):
        return
    if spec.mesh is not mesh or not _is_plain(spec):
        return
    if len(_KNOWN_PLANS) >= _MAX_KNOWN_PLANS:
        _KNOWN_PLANS.clear()
    _KNOWN_PLANS[key] = _rules_of(schema.op), _fields_of(spec)


def _mesh_of(schema: OpSchema) -> DeviceMesh | None:
    specs = schema.args_spec
    return specs[0].mesh if specs else None


def _rules_of(op: Any) -> tuple[Any, ...]:
    """Return the rules by which torch searches for the plan of an op; a program may change them."""
    propagator = _propagator()
    tables = (
        propagator.op_to_rules,
        propagator.op_strategy_funcs,
        propagator.op_single_dim_strategy_funcs,
    )
    return tuple(table.get(op) for table in tables)


def _key_of(schema: OpSchema, mesh: DeviceMesh) -> tuple[Any, ...] | None:
    """Return the key of all values that a search reads; None if one is no plain value."""
    place = (mesh.device_type, mesh.shape, mesh.mesh_dim_names)
    kwargs = [*schema.kwargs_schema.items()]
    try:
        return schema.op, place, _plain([schema.args_schema, kwargs], mesh)
    except _OtherValueError:
        return None


def _plain(value: Any, mesh: DeviceMesh) -> Any:
    """Return a value to compare by: numbers with their type, layouts without their mesh.

    Raises:
        _OtherValueError: There is none.
    """
    if isinstance(value, DTensorSpec) and value.mesh is mesh and _is_plain(value):
        placements, meta, order = _fields_of(value)
        return tuple(map(type, placements)), placements, _plain(meta, mesh), order
    if isinstance(value, (list, tuple)):
        return tuple(_plain(each, mesh) for each in value)
    if type(value) in _PLAIN_VALUES:
        return type(value), value
    raise _OtherValueError


def _is_plain(spec: DTensorSpec) -> bool:
    return all(type(each) in _PLAIN_PLACEMENTS for each in spec.placements)


def _fields_of(spec: DTensorSpec) -> tuple[Any, ...]:
    return spec.placements, spec.tensor_meta, spec.shard_order


def _obvious_output(schema: OpSchema) -> DTensorSpec | None:
    """Return the layout of the output, or None if torch has to search for it."""
    if schema.op is _DETACH:
        return _as(schema.args_spec[0])
    if schema.op in _IN_PLACE and len(schema.args_spec) == 2:
        first, other = schema.args_spec
        lies_alike = first.mesh is other.mesh and (
            (first.placements, first.shard_order, first.shape)
            == (other.placements, other.shard_order, other.shape)
        )
        return _as(first) if lies_alike and _adds_up(first) else None
    if schema.op is _TO_COPY and schema.kwargs_schema.keys() == {"dtype"}:
        spec = schema.args_spec[0]
        # The op on a tensor without memory: one that is not dense gets other strides.
        meta = _propagator()._propagate_tensor_meta  # noqa: SLF001
        return _as(spec, meta(schema)) if _adds_up(spec) else None
    return None


def _as(spec: DTensorSpec, meta: TensorMeta | None = None) -> DTensorSpec | None:
    """Return a new spec, since specs are mutable; None for one that torch marks as strided."""
    if spec.use_strided_shard_as_shard_order:
        return None
    meta = meta or spec.tensor_meta
    return DTensorSpec(spec.mesh, spec.placements, meta, spec.shard_order)


def _adds_up(spec: DTensorSpec) -> bool:
    """Tell whether local parts may be added rank by rank: none is a part of a maximum."""
    return not any(
        isinstance(placement, Partial) and placement.reduce_op not in {"sum", "avg"}
        for placement in spec.placements
    )
