"""Which gradients are summed over which ranks, and in which bucket.

Pure planning: this module reads placements, shapes and dtypes, allocates no buffer and
communicates nothing.

Note [One launch order]
~~~~~~~~~~~~~~~~~~~~~~~
A bucket is placed by the position, counted backwards through all parameters, of its
last member: the earliest moment at which it can be complete. The ranks that share a
bucket have equal local shapes for every parameter in it, so they agree on its members
and on its position, even where other ranks hold larger shards and cut other buckets.
Each rank launches in increasing position. A cycle of ranks that wait for each other
would need a bucket that comes before itself, so no set of overlapping rank sets, on
one mesh or on several, can deadlock or pair different buckets.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import accumulate

import torch
from torch import nn
from torch.distributed.tensor import DTensor

from .config import DEFAULT_CONFIG, SynchronizerConfig
from .scope import ReduceScope, reduce_scope

ALIGNMENT_BYTES = 128


@dataclass(frozen=True, slots=True)
class BucketKey:
    """What all gradients of one bucket have in common.

    Attributes:
        group_index: Position of the parameter group.
        device: Where the local gradients live.
        grad_dtype: In which they are accumulated and summed.
        scope: The ranks that sum them; None keeps them local.
    """

    group_index: int
    device: torch.device
    grad_dtype: torch.dtype
    scope: ReduceScope | None


@dataclass(frozen=True, slots=True, eq=False)
class ParameterPlan:
    """One parameter, and what its local gradient looks like.

    Attributes:
        parameter: The parameter itself.
        name: For messages.
        local_shape: Of this rank's shard; may hold no element.
        local_stride: Dense, in elements; follows the parameter's own where that is dense.
        local_numel: Elements of this rank's shard.
        reduce_axes: Axes of the parameter's own mesh over which to sum.
    """

    parameter: nn.Parameter
    name: str
    local_shape: tuple[int, ...]
    local_stride: tuple[int, ...]
    local_numel: int
    reduce_axes: tuple[int, ...]


@dataclass(frozen=True, slots=True, eq=False)
class BucketPlan:
    """One flat buffer, and who lives where in it.

    Attributes:
        index: Position in launch order.
        key: What the members have in common.
        members: Last parameter first.
        offsets_numel: Where each member's view starts, in elements of the buffer.
        buffer_numel: Elements of the buffer, padding included.
        flags_offset_numel: Where one flag for each member starts, if there are any:
            not 0 after the reduction where some rank used the member.
    """

    index: int
    key: BucketKey
    members: tuple[ParameterPlan, ...]
    offsets_numel: tuple[int, ...]
    buffer_numel: int
    flags_offset_numel: int | None = None

    @property
    def scope(self) -> ReduceScope | None:
        """The ranks to sum over; None where nothing has to be communicated."""
        return self.key.scope if self.buffer_numel else None


@dataclass(slots=True, eq=False)
class _Draft:
    """A bucket that may still grow."""

    key: BucketKey
    members: list[ParameterPlan] = field(default_factory=list)
    payload_bytes: int = 0
    last_position: int = 0

    def add(self, member: ParameterPlan, position: int) -> None:
        self.members.append(member)
        self.payload_bytes += _payload_bytes(member, self.key)
        self.last_position = position


def plan_buckets(
    param_groups: Sequence[Sequence[nn.Parameter]],
    *,
    bucket_cap_bytes: float,
    parameter_names: Mapping[nn.Parameter, str],
    config: SynchronizerConfig = DEFAULT_CONFIG,
) -> tuple[BucketPlan, ...]:
    """Assign every parameter that is trained to one bucket.

    Args:
        param_groups: In registration order. Planning walks all of them last to first,
            because gradients become ready in that order.
        bucket_cap_bytes: Upper bound on the local elements of one bucket, in bytes of
            the gradient dtype, padding not counted. A parameter above it is alone.
        parameter_names: Names for messages; may leave parameters out.
        config: Whether plain parameters are summed, and ranks tell each other which
            parameters they used.

    Returns:
        The buckets in launch order, see Note [One launch order].

    Raises:
        UnsupportedPlacementError: A placement is neither Replicate nor sharded.
    """
    candidates = list(_candidates(param_groups, parameter_names, config))
    open_drafts: dict[BucketKey, _Draft] = {}
    drafts: list[_Draft] = []
    for position, (key, member) in enumerate(reversed(candidates)):
        draft = open_drafts.get(key)
        if draft is None or (
            draft.payload_bytes + _payload_bytes(member, key) > bucket_cap_bytes
        ):
            draft = open_drafts[key] = _Draft(key)
            drafts.append(draft)
        draft.add(member, position)
    drafts.sort(key=lambda draft: draft.last_position)
    return tuple(
        _lay_out(index, draft, with_flags=config.unused == "keep_none")
        for index, draft in enumerate(drafts)
    )


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


def _candidates(
    param_groups: Sequence[Sequence[nn.Parameter]],
    parameter_names: Mapping[nn.Parameter, str],
    config: SynchronizerConfig,
) -> Iterator[tuple[BucketKey, ParameterPlan]]:
    """Yield each trained parameter once, tied ones where they are first listed."""
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
) -> tuple[BucketKey, ParameterPlan]:
    local = local_tensor(parameter)
    scope = reduce_scope(parameter, name, config.process_group)
    key = BucketKey(group_index, local.device, _grad_dtype(parameter), scope)
    # Asking for the strides that torch would give a new tensor "like" the parameter
    # keeps dense layouts, channels-last say, and makes any other layout dense.
    stride = torch.empty_like(local, device="meta").stride()
    return key, ParameterPlan(
        parameter,
        name,
        local_shape=tuple(local.shape),
        local_stride=stride,
        local_numel=local.numel(),
        reduce_axes=scope.axes if scope else (),
    )


def _grad_dtype(parameter: nn.Parameter) -> torch.dtype:
    """Return the accumulation dtype; torch's `grad_dtype` None means "any"."""
    return parameter.grad_dtype or parameter.dtype


def _payload_bytes(member: ParameterPlan, key: BucketKey) -> int:
    return member.local_numel * key.grad_dtype.itemsize


def _lay_out(index: int, draft: _Draft, *, with_flags: bool) -> BucketPlan:
    """Give every member an aligned offset; the padding between them stays zero."""
    numels = [member.local_numel for member in draft.members]
    flags_start = None
    *offsets, end = _aligned_starts(numels, draft.key)
    if with_flags and end and draft.key.scope:
        flags_start, end = end, end + _aligned_starts([len(numels)], draft.key)[-1]
    members = tuple(draft.members)
    return BucketPlan(index, draft.key, members, tuple(offsets), end, flags_start)


def _aligned_starts(numels: list[int], key: BucketKey) -> list[int]:
    alignment = ALIGNMENT_BYTES // key.grad_dtype.itemsize
    aligned = (-(-numel // alignment) * alignment for numel in numels)
    return list(accumulate(aligned, initial=0))
