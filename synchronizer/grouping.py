"""Which gradients are summed over which ranks, and in which bucket.

Pure planning: this module reads placements, shapes and dtypes, allocates no buffer and
communicates nothing.

Note [One launch order]
~~~~~~~~~~~~~~~~~~~~~~~
A bucket is placed by the position of its last member: the earliest moment at which it
can be complete. Before training a position is counted backwards through all parameters;
after a rebuild it is the one that the lowest of the ranks that sum the parameter has
observed, see Note [Whose order counts]. Either way the ranks that share a bucket know
one position for each of its members. They also have equal local shapes for all of
them, so they agree on the bucket's members and on its place, even where other ranks
hold larger shards and cut other buckets.

Two buckets of different rank sets may have been placed by different ranks at equal
positions; then the rank sets decide. Two of one rank set never are, since one rank gives
each of its parameters a position of its own. So (position, ranks) is one strict order
of all buckets of all ranks, and each rank launches its own in increasing order. A cycle
of ranks that wait for each other would need a bucket that comes before itself, so no set
of overlapping rank sets, on one mesh or on several, can deadlock or pair different
buckets. `Note [Axis by axis]` extends the order to buckets that travel in phases.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import accumulate

import torch
from torch import nn
from torch.distributed.tensor import DTensor

from .config import DEFAULT_CONFIG, SynchronizerConfig
from .cutting import cut
from .reduction import Reduction, reduction_of, refuse_unknown_axes
from .scope import ReduceScope
from .wire import WireFormat

ALIGNMENT_BYTES = 128


@dataclass(frozen=True, slots=True)
class BucketKey:
    """What all gradients of one bucket have in common.

    Attributes:
        group_index: Position of the parameter group.
        device: Where the local gradients live.
        grad_dtype: In which they are accumulated.
        scope: The ranks that sum them; None keeps them local.
        wire: In which dtype they are summed, and what the sum is divided by.
        check: The ranks that must hold the same before; None where there is no check.
    """

    group_index: int
    device: torch.device
    grad_dtype: torch.dtype
    scope: ReduceScope | None
    wire: WireFormat
    check: ReduceScope | None = None


@dataclass(frozen=True, slots=True, eq=False)
class ParameterPlan:
    """One parameter, and what its local gradient looks like.

    Attributes:
        parameter: The parameter itself.
        name: For messages.
        local_shape: Of this rank's shard; may hold no element.
        local_stride: Dense, in elements; follows the parameter's own where that is dense.
        local_numel: Elements of this rank's shard.
        reduction: What happens to the gradient; its axes are those of the parameter's
            own mesh.
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
    """One flat buffer, and who lives where in it.

    Attributes:
        index: Position in launch order.
        key: What the members have in common.
        members: In the order in which they are expected to be ready.
        offsets_numel: Where each member's view starts, in elements of the buffer.
        buffer_numel: Elements of the buffer, padding included.
        flags_offset_numel: Where one flag for each member starts, if there are any:
            not 0 after the reduction where some rank used the member.
        num_shards: Into how many equal parts, owned by one rank each, the buffer is
            reduced; 1 where every rank gets all of it.
    """

    index: int
    key: BucketKey
    members: tuple[ParameterPlan, ...]
    offsets_numel: tuple[int, ...]
    buffer_numel: int
    flags_offset_numel: int | None = None
    num_shards: int = 1

    @property
    def scope(self) -> ReduceScope | None:
        """The ranks to sum over; None where nothing has to be communicated."""
        return self.key.scope if self.buffer_numel else None

    @property
    def check(self) -> ReduceScope | None:
        """The ranks to compare with; None where nothing has to be compared."""
        return self.key.check if self.buffer_numel else None


@dataclass(frozen=True, slots=True, eq=False)
class Candidate:
    """A parameter that has to be put into some bucket.

    Attributes:
        key: What the members of its bucket have in common.
        plan: The parameter itself.
    """

    key: BucketKey
    plan: ParameterPlan

    @property
    def payload_bytes(self) -> int:
        """Of the local gradient."""
        return self.plan.local_numel * self.key.grad_dtype.itemsize

    @property
    def ranks(self) -> tuple[int, ...]:
        """Those that sum the gradient; none where it stays local."""
        return self.key.scope.ranks if self.key.scope else ()


@dataclass(frozen=True, slots=True, eq=False)
class _Draft:
    """The members of a bucket and its place in launch order."""

    members: Sequence[Candidate]
    place: tuple[int, tuple[int, ...]]


def plan_buckets(
    param_groups: Sequence[Sequence[nn.Parameter]],
    *,
    bucket_cap_bytes: float,
    parameter_names: Mapping[nn.Parameter, str],
    config: SynchronizerConfig = DEFAULT_CONFIG,
) -> tuple[BucketPlan, ...]:
    """Assign every parameter that is trained to one bucket.

    Args:
        param_groups: In registration order.
        bucket_cap_bytes: Upper bound on the local elements of one bucket, in bytes of
            the gradient dtype, padding not counted. A parameter above it is alone. The
            first and the last bucket of a kind are smaller, see
            Note [Small at both ends].
        parameter_names: Names for messages; may leave parameters out.
        config: What is reduced otherwise than placements say, how it travels, and whether
            ranks tell each other which parameters they used.

    Returns:
        The buckets in launch order, see Note [One launch order].

    Raises:
        UnsupportedPlacementError: A placement is neither Replicate nor sharded.
        InvalidArgumentError: There is no such mesh axis.
        ProcessGroupError: The group for plain parameters cannot be used.
    """
    candidates = list_candidates(param_groups, parameter_names, config)
    return cut_buckets(candidates, bucket_cap_bytes=bucket_cap_bytes, config=config)


def list_candidates(
    param_groups: Sequence[Sequence[nn.Parameter]],
    parameter_names: Mapping[nn.Parameter, str],
    config: SynchronizerConfig,
) -> list[Candidate]:
    """List each parameter that is trained once, tied ones where they are first listed.

    Args:
        param_groups: In registration order.
        parameter_names: Names for messages; may leave parameters out.
        config: What is reduced otherwise than placements say, and how it travels.

    Returns:
        In registration order.

    Raises:
        UnsupportedPlacementError: A placement is neither Replicate nor sharded.
        InvalidArgumentError: There is no such mesh axis.
        ProcessGroupError: The group for plain parameters cannot be used.
    """
    refuse_unknown_axes((p for group in param_groups for p in group), config)
    return list(_candidates(param_groups, parameter_names, config))


def cut_buckets(
    candidates: Sequence[Candidate],
    *,
    bucket_cap_bytes: float,
    config: SynchronizerConfig,
    positions: Sequence[int] | None = None,
) -> tuple[BucketPlan, ...]:
    """Assign every candidate to one bucket.

    Args:
        candidates: In registration order.
        bucket_cap_bytes: As for `plan_buckets`.
        config: Whether ranks tell each other which parameters they used, and whether
            each of them gets a part of the sums only.
        positions: When each of them is expected to be ready, see
            Note [One launch order]; different among those of equal ranks. Left out, the
            last one registered comes first.

    Returns:
        The buckets in launch order.
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
    """Return this rank's part of a tensor, outside of any graph.

    Args:
        tensor: A DTensor, or a plain tensor that is its own local part.

    Returns:
        A tensor that shares its memory.
    """
    if not isinstance(tensor, DTensor):
        return tensor
    # Entering `no_grad` takes ten times as long as the rest, and hooks are in it already.
    if not torch.is_grad_enabled():
        return tensor.to_local()
    with torch.no_grad():
        return tensor.to_local()


def dense_stride(tensor: torch.Tensor) -> tuple[int, ...]:
    """Return the strides that a gradient of a tensor should have.

    Args:
        tensor: A parameter, local or global.

    Returns:
        Its own strides where they are dense, as channels-last is, and contiguous ones
        otherwise: what torch gives to a new tensor "like" it.

    Source:
        The layout contract in torch's `accumulate_grad.h`, which warns of other ones.
    """
    layout = torch.empty_strided(tensor.shape, tensor.stride(), device="meta")
    return torch.empty_like(layout).stride()


def _candidates(
    param_groups: Sequence[Sequence[nn.Parameter]],
    parameter_names: Mapping[nn.Parameter, str],
    config: SynchronizerConfig,
) -> Iterator[Candidate]:
    seen: set[int] = set()
    for group_index, group in enumerate(param_groups):
        for position, parameter in enumerate(group):
            if id(parameter) in seen or not parameter.requires_grad:
                continue
            seen.add(id(parameter))
            default = (
                f"group {group_index} parameter {position}"
                f" of shape {tuple(parameter.shape)}"
            )
            name = parameter_names.get(parameter, default)
            yield _candidate(parameter, name, group_index, config)


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
    return BucketKey(
        group_index, device, grad_dtype, reduction.scope, wire, reduction.check
    )


def _grad_dtype(parameter: nn.Parameter) -> torch.dtype:
    """Return the accumulation dtype; torch's `grad_dtype` None means "any"."""
    return parameter.grad_dtype or parameter.dtype


def _lay_out(
    index: int, members: Sequence[Candidate], config: SynchronizerConfig
) -> BucketPlan:
    """Give every member an aligned offset; the padding between them stays zero."""
    # Equal scopes may have been found on several meshes: fewest axes, fewest collectives.
    key = min(
        (member.key for member in members),
        key=lambda key: len(key.scope.axes) if key.scope else 0,
    )
    plans = tuple(member.plan for member in members)
    *offsets, end = _aligned_starts([plan.local_numel for plan in plans], key)
    flags_start = None
    if config.unused == "keep_none" and end and key.scope:
        flags_start, end = end, end + _aligned_starts([len(plans)], key)[-1]
    scope = key.scope if config.mode == "reduce_scatter" else None
    num_shards = len(scope.ranks) if scope else 1
    end = _aligned_starts([end], key, num_shards)[-1]
    return BucketPlan(index, key, plans, tuple(offsets), end, flags_start, num_shards)


def _aligned_starts(
    numels: list[int], key: BucketKey, num_shards: int = 1
) -> list[int]:
    """Start every entry at a multiple of 128 bytes; of as many for every shard."""
    alignment = ALIGNMENT_BYTES // key.grad_dtype.itemsize * num_shards
    aligned = (-(-numel // alignment) * alignment for numel in numels)
    return list(accumulate(aligned, initial=0))
