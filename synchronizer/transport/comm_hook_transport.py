"""The transport of a bucket that a comm hook reduces."""

from dataclasses import dataclass, field
from typing import Any

import torch
import torch.distributed as dist

from syncverify.synchronizer.contract.comm_hook import CommHook, HookBucket
from syncverify.synchronizer.contract.errors import CommHookError
from syncverify.synchronizer.plan.grouping import BucketPlan


@dataclass(frozen=True, slots=True, eq=False)
class HookTransport:
    """Reduces a bucket by a call of the comm hook.

    Attributes:
        hook: The comm hook.
        plan: Layout of the bucket.
        group: Process group of all ranks of the bucket.
        is_last: Whether the bucket is the last to be launched.
        padding: Indices of the elements between and after the gradients, without flags.
        state: Tensors that the hook keeps for this bucket.
    """

    hook: CommHook
    plan: BucketPlan
    group: dist.ProcessGroup
    is_last: bool
    padding: torch.Tensor
    state: dict[str, torch.Tensor] = field(default_factory=dict)

    def start(self, buffer: torch.Tensor) -> "PendingHook":
        """Return the reductions that start: of the gradients by the hook, and of flags."""
        gradients, flags = _parted(buffer, self.plan)
        # A hook may send a part of its buffer, or round it; each flag has to arrive.
        sums = (
            dist.all_reduce(flags, group=self.group, async_op=True)
            if flags.numel()
            else None
        )
        try:
            future = self.hook(self._bucket(gradients))
        except Exception as error:
            got = f"{type(error).__name__}: {error}"
            raise _error(self.plan, "raised", got) from error
        # The future of a collective is no `torch.futures.Future`, but an instance of its
        # base class, which has no public name. Tensors and work handles have no `then`.
        if not hasattr(future, "then"):
            raise _error(self.plan, "returned no future", type(future).__name__)
        return PendingHook(future, gradients, self.plan, self.padding, sums)

    def _bucket(self, buffer: torch.Tensor) -> HookBucket:
        plan = self.plan
        return HookBucket(
            buffer=buffer,
            views=tuple(
                buffer.as_strided(member.local_shape, member.local_stride, offset)
                for member, offset in zip(plan.members, plan.offsets_numel, strict=True)
            ),
            names=tuple(member.name for member in plan.members),
            group=self.group,
            index=plan.index,
            is_last=self.is_last,
            state=self.state,
        )


@dataclass(frozen=True, slots=True, eq=False)
class PendingHook:
    """A reduction that a comm hook started.

    Attributes:
        future: Future of the sums.
        buffer: Shape (N,): the gradients, without flags.
        plan: Layout of the bucket.
        padding: Indices of the elements between and after the gradients, without flags.
        flags: The sum of the flags; None without flags.
    """

    future: Any
    buffer: torch.Tensor
    plan: BucketPlan
    padding: torch.Tensor
    flags: dist.Work | None

    def finish(self) -> None:
        """Order the current stream after the sums, and write them into the buffer."""
        if self.flags is not None:
            self.flags.wait()
        reduced: object = self.future.wait()
        if not isinstance(reduced, torch.Tensor):
            got = type(reduced).__name__
            raise _error(self.plan, "returned a future of no tensor", got)
        if (reduced.shape, reduced.device) != (self.buffer.shape, self.buffer.device):
            got = f"a tensor of shape {tuple(reduced.shape)} on {reduced.device}"
            raise _error(self.plan, "returned a future of another tensor", got)
        if reduced.data_ptr() != self.buffer.data_ptr():
            self.buffer.copy_(reduced)
        # A norm reads across the padding, and the hook may have filled it.
        self.buffer.index_fill_(0, self.padding, 0)


def _parted(
    buffer: torch.Tensor, plan: BucketPlan
) -> tuple[torch.Tensor, torch.Tensor]:
    """Return the gradients and the flags of a buffer, as views."""
    return buffer[: plan.gradients_numel], buffer[plan.gradients_numel :]


def padding_of(plan: BucketPlan) -> torch.Tensor:
    """Return the indices of the elements that belong to no gradient, without flags."""
    is_padding = torch.ones(plan.gradients_numel, dtype=torch.bool)
    for member, offset in zip(plan.members, plan.offsets_numel, strict=True):
        is_padding[offset : offset + member.local_numel] = False
    return is_padding.nonzero().flatten().to(plan.key.device)


def _error(plan: BucketPlan, mistake: str, got: str) -> CommHookError:
    shape = (plan.gradients_numel,)
    return CommHookError(
        f"the comm hook {mistake} for bucket {plan.index}",
        expected=f"a future of a tensor of shape {shape} on {plan.key.device}",
        got=got,
        where=f"bucket {plan.index}",
    )
