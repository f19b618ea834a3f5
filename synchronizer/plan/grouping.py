"""The assignment of gradients to buckets, and the launch order of buckets.

Pure planning: this module reads placements, shapes and dtypes, allocates no buffer and
communicates nothing.

Note [One launch order]
~~~~~~~~~~~~~~~~~~~~~~~
All ranks launch their buckets in one strict order, so no set of ranks can deadlock. The
argument has three steps.

1. *Ranks that share a bucket agree on its position.* The position of a bucket is the
   position of its last member: the earliest moment at which the bucket can be complete.
   Before training, the position of a parameter is counted backwards through all
   parameters. After a rebuild, it is the position that the lowest rank of the
   parameter's rank set has observed, see Note [The deciding rank]. In both cases the
   ranks that share a bucket know one position for each member. They also have equal
   local shapes for all members. So they agree on the members of the bucket and on its
   position, even where other ranks hold larger shards and cut other buckets.
2. *(position, ranks) is a strict order of all buckets of all ranks.* Two buckets of
   different rank sets may have equal positions, from different ranks; then the rank
   sets decide. Two buckets of one rank set never have equal positions, because one rank
   gives each of its parameters another position.
3. *Each rank launches its buckets in increasing order.* A cycle of ranks that wait for
   each other would need a bucket that comes before itself. So no set of overlapping
   rank sets, on one mesh or on several, can deadlock or pair different buckets.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

import torch
from torch import nn
from torch.distributed.tensor import DTensor
from torch.nn.parameter import is_lazy

from syncverify.synchronizer.contract import parameter_groups
from syncverify.synchronizer.contract.config import DEFAULT_CONFIG, SynchronizerConfig
from syncverify.synchronizer.contract.errors import (
    InvalidArgumentError,
    UnsupportedPlacementError,
)
from syncverify.synchronizer.plan.alignment import aligned_end, aligned_starts
from syncverify.synchronizer.plan.cutting import cut
from syncverify.synchronizer.plan.reduction import (
    Reduction,
    reduction_of,
    refuse_unknown_axes,
)
from syncverify.synchronizer.plan.wire_format import WireFormat
from syncverify.synchronizer.ranks.fsdp import ranks_summed_by_fsdp
from syncverify.synchronizer.ranks.scope import ReduceScope, rank_list


@dataclass(frozen=True, slots=True)
class BucketKey:
    """Properties that all gradients of one bucket share.

    Attributes:
        group_index: Position of the parameter group.
        device: Device of the local gradients.
        grad_dtype: Dtype in which gradients are accumulated.
        scope: The ranks that sum them; None keeps them local.
        wire: Dtype in which they are summed, and divisor of the sum.
    """

    group_index: int
    device: torch.device
    grad_dtype: torch.dtype
    scope: ReduceScope | None
    wire: WireFormat


@dataclass(frozen=True, slots=True, eq=False)
class ParameterPlan:
    """One parameter, and the layout of its local gradient.

    Attributes:
        parameter: The parameter.
        name: Name for messages.
        local_shape: Shape of this rank's shard; may hold no element.
        local_stride: Dense strides, in elements; those of the parameter where it is
            dense.
        local_numel: Number of elements of this rank's shard.
        reduction: Reduction over axes of the parameter's mesh.
    """

    parameter: nn.Parameter
    name: str
    local_shape: tuple[int, ...]
    local_stride: tuple[int, ...]
    local_numel: int
    reduction: Reduction

    @property
    def reduce_axes(self) -> tuple[int, ...]:
        """Axes of the parameter's own mesh over which to sum."""
        return self.reduction.scope.axes if self.reduction.scope else ()


@dataclass(frozen=True, slots=True, eq=False)
class BucketPlan:
    """One flat buffer, and the place of each member in it.

    Attributes:
        index: Position in launch order.
        key: Properties that the members share.
        members: Parameters, in the order in which they are expected to be ready.
        offsets_numel: Start of each member's view, in elements of the buffer.
        buffer_numel: Number of elements of the buffer, padding included.
        flags_offset_numel: Start of the flags, in elements: one flag for each member,
            not 0 after the reduction where some rank used the member. None without
            flags.
        num_shards: Number of equal parts, owned by one rank each, into which the buffer
            is reduced; 1 where every rank gets all of it.
    """

    index: int
    key: BucketKey
    members: tuple[ParameterPlan, ...]
    offsets_numel: tuple[int, ...]
    buffer_numel: int
    flags_offset_numel: int | None = None
    num_shards: int = 1

    @property
    def gradients_numel(self) -> int:
        """Number of elements before the flags, padding included."""
        flags_start = self.flags_offset_numel
        return self.buffer_numel if flags_start is None else flags_start

    @property
    def scope(self) -> ReduceScope | None:
        """The ranks to sum over; None where there is nothing to communicate."""
        return self.key.scope if self.buffer_numel else None


@dataclass(frozen=True, slots=True, eq=False)
class Candidate:
    """A parameter that has to be assigned to a bucket of its key.

    Attributes:
        key: Key of the bucket.
        plan: Plan of the parameter.
    """

    key: BucketKey
    plan: ParameterPlan

    @property
    def payload_bytes(self) -> int:
        """Size of the local gradient."""
        return self.plan.local_numel * self.key.grad_dtype.itemsize

    @property
    def ranks(self) -> tuple[int, ...]:
        """The ranks that sum the gradient; empty where it stays local."""
        return self.key.scope.ranks if self.key.scope else ()


@dataclass(frozen=True, slots=True, eq=False)
class _Draft:
    """A bucket that is not cut yet.

    Attributes:
        members: Parameters of the bucket.
        place: Place in launch order: the position of the last member, and the ranks. See Note
            [One launch order].
    """

    members: Sequence[Candidate]
    place: tuple[int, tuple[int, ...]]


def plan_buckets(
    param_groups: Sequence[Sequence[nn.Parameter]],
    *,
    bucket_cap_bytes: float,
    parameter_names: Mapping[nn.Parameter, str],
    config: SynchronizerConfig = DEFAULT_CONFIG,
) -> tuple[BucketPlan, ...]:
    """Assign every trained parameter to one bucket, in launch order."""
    candidates = list_candidates(param_groups, parameter_names, config)
    return cut_buckets(candidates, bucket_cap_bytes=bucket_cap_bytes, config=config)


def list_candidates(
    param_groups: Sequence[Sequence[nn.Parameter]],
    parameter_names: Mapping[nn.Parameter, str],
    config: SynchronizerConfig,
) -> list[Candidate]:
    """List each trained parameter once, in registration order."""
    parameter_groups.checked(param_groups)  # the caller may have changed them since
    refuse_unknown_axes((p for group in param_groups for p in group), config)
    candidates = list(_candidates(param_groups, parameter_names, config))
    _refuse_second_sums([each.plan for each in candidates])
    return candidates


def cut_buckets(
    candidates: Sequence[Candidate],
    *,
    bucket_cap_bytes: float,
    config: SynchronizerConfig,
    positions: Sequence[int] | None = None,
) -> tuple[BucketPlan, ...]:
    """Return the buckets of all candidates, in launch order.

    `candidates` are in registration order. `bucket_cap_bytes` is the upper bound on the
    local elements of one bucket, in bytes of the gradient dtype, without padding. A
    larger parameter has a bucket for itself. The first and the last bucket of a key
    may be smaller, see Note [Small at both ends]. `positions` are the expected positions
    in the order of readiness, distinct among candidates of equal ranks. Default: the
    last registered candidate comes first.
    """
    if positions is None:
        positions = range(len(candidates))[::-1]
    rows: dict[BucketKey, list[tuple[int, Candidate]]] = {}
    for position, candidate in sorted(
        zip(positions, candidates, strict=True), key=lambda placed: placed[0]
    ):
        rows.setdefault(candidate.key, []).append((position, candidate))
    drafts = [
        draft for row in rows.values() for draft in _cut_row(row, bucket_cap_bytes)
    ]
    drafts.sort(key=lambda draft: draft.place)
    return tuple(
        _lay_out(index, draft.members, config) for index, draft in enumerate(drafts)
    )


def _cut_row(
    row: Sequence[tuple[int, Candidate]], bucket_cap_bytes: float
) -> Iterator[_Draft]:
    """Cut candidates of one key, in order of readiness, into buckets."""
    start = 0
    for count in cut([each.payload_bytes for _, each in row], bucket_cap_bytes):
        part = row[start : start + count]
        start += count
        position, last = part[-1]
        yield _Draft([each for _, each in part], (position, last.ranks))


def local_tensor(tensor: torch.Tensor) -> torch.Tensor:
    """Return this rank's part of a tensor: shared memory, outside of any graph."""
    if not isinstance(tensor, DTensor):
        return tensor
    # `no_grad` takes ten times as long as the rest, and hooks run inside it already.
    if not torch.is_grad_enabled():
        return tensor.to_local()
    with torch.no_grad():
        return tensor.to_local()


def dense_stride(tensor: torch.Tensor) -> tuple[int, ...]:
    """Return the strides of a gradient: those that torch gives to a tensor "like" it.

    These are the tensor's own strides where they are dense, such as channels-last, and
    contiguous strides otherwise.

    Source:
        The layout contract in torch's `accumulate_grad.h`, which warns of other
        strides.
    """
    layout = torch.empty_strided(tensor.shape, tensor.stride(), device="meta")
    return torch.empty_like(layout).stride()


def _candidates(
    param_groups: Sequence[Sequence[nn.Parameter]],
    parameter_names: Mapping[nn.Parameter, str],
    config: SynchronizerConfig,
) -> Iterator[Candidate]:
    for group_index, name, parameter in _named(param_groups, parameter_names):
        if parameter.requires_grad:
            yield _candidate(parameter, name, group_index, config)


def frozen_parameters(
    param_groups: Sequence[Sequence[nn.Parameter]],
    parameter_names: Mapping[nn.Parameter, str],
) -> dict[str, nn.Parameter]:
    """Return the listed parameters that need no gradient now, by name."""
    return {
        name: parameter
        for _, name, parameter in _named(param_groups, parameter_names)
        if not parameter.requires_grad
    }


def _refuse_second_sums(plans: Sequence[ParameterPlan]) -> None:
    summed = ranks_summed_by_fsdp([plan.parameter for plan in plans])
    for plan in plans:
        scope, ranks = plan.reduction.scope, summed.get(plan.parameter, ())
        if scope and {*ranks} & {*scope.ranks}:
            raise UnsupportedPlacementError(
                f"the gradient of {plan.name} would be summed twice",
                expected="one owner of the sum: FSDP2 on the sharded axis alone, or the "
                'axis reduction "none" for the replicated axis',
                got=f"FSDP2 or replicate() sums over ranks {rank_list(ranks)} in backward",
                where=f"the sum over ranks {rank_list(scope.ranks)}",
            )


def _named(
    param_groups: Sequence[Sequence[nn.Parameter]],
    parameter_names: Mapping[nn.Parameter, str],
) -> Iterator[tuple[int, str, nn.Parameter]]:
    """Yield group, name and parameter, each parameter once."""
    seen: set[int] = set()
    for group_index, group in enumerate(param_groups):
        for position, parameter in enumerate(group):
            if id(parameter) in seen:
                continue
            seen.add(id(parameter))
            if is_lazy(parameter):
                raise InvalidArgumentError(
                    f"group {group_index} parameter {position} has no shape yet",
                    expected="initialized parameters",
                    got=f"{type(parameter).__name__}: run a forward before bind()",
                )
            # A name for messages where the user gave none.
            default = (
                f"group {group_index} parameter {position}"
                f" of shape {tuple(parameter.shape)}"
            )
            yield group_index, parameter_names.get(parameter, default), parameter


def _candidate(
    parameter: nn.Parameter, name: str, group_index: int, config: SynchronizerConfig
) -> Candidate:
    local = local_tensor(parameter)
    reduction = reduction_of(parameter, name, config)
    key = _key(parameter, group_index, reduction, config)
    plan = ParameterPlan(
        parameter,
        name,
        local_shape=tuple(local.shape),
        local_stride=dense_stride(local),
        local_numel=local.numel(),
        reduction=reduction,
    )
    return Candidate(key, plan)


def _key(
    parameter: nn.Parameter,
    group_index: int,
    reduction: Reduction,
    config: SynchronizerConfig,
) -> BucketKey:
    grad_dtype = _grad_dtype(parameter)
    wire_dtype = grad_dtype
    if reduction.scope and grad_dtype.is_floating_point and config.wire_dtype:
        wire_dtype = config.wire_dtype
    wire = WireFormat.of(wire_dtype, divisor=reduction.divisor, scaling=config.scaling)
    device = local_tensor(parameter).device
    return BucketKey(group_index, device, grad_dtype, reduction.scope, wire)


def _grad_dtype(parameter: nn.Parameter) -> torch.dtype:
    """Return the accumulation dtype; torch's `grad_dtype` None means "any dtype"."""
    return parameter.grad_dtype or parameter.dtype


def _lay_out(
    index: int, members: Sequence[Candidate], config: SynchronizerConfig
) -> BucketPlan:
    """Give every member an aligned offset; the padding between members stays zero."""
    # Equal scopes may come from several meshes. Fewer axes need fewer collectives.
    key = min(
        (member.key for member in members),
        key=lambda key: len(key.scope.axes) if key.scope else 0,
    )
    plans = tuple(member.plan for member in members)
    itemsize = key.grad_dtype.itemsize
    *offsets, end = aligned_starts([plan.local_numel for plan in plans], itemsize)
    flags_start = None
    if config.unused == "keep_none" and key.scope:  # of empty gradients too
        flags_start, end = end, end + aligned_end(len(plans), itemsize)
    scope = key.scope if config.mode == "reduce_scatter" else None
    num_shards = len(scope.ranks) if scope else 1
    end = aligned_end(end, itemsize, num_shards)
    return BucketPlan(
        index=index,
        key=key,
        members=plans,
        offsets_numel=tuple(offsets),
        buffer_numel=end,
        flags_offset_numel=flags_start,
        num_shards=num_shards,
    )
