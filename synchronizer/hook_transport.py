"""How the sum of a bucket travels when a comm hook reduces it."""

from dataclasses import dataclass, field
from typing import Any

import torch
import torch.distributed as dist

from .comm_hook import CommHook, HookBucket
from .errors import CommHookError
from .grouping import BucketPlan


@dataclass(frozen=True, slots=True, eq=False)
class HookTransport:
    """Reduces a bucket by calling a comm hook.

    Attributes:
        hook: The user's.
        plan: Of the bucket.
        group: All the ranks of the bucket.
        is_last: Whether it is the last bucket to be launched.
        state: The hook's own.
    """

    hook: CommHook
    plan: BucketPlan
    group: dist.ProcessGroup
    is_last: bool
    state: dict[str, torch.Tensor] = field(default_factory=dict)

    def start(self, buffer: torch.Tensor) -> "PendingHook":
        """Call the hook.

        Args:
            buffer: Shape (N,).

        Returns:
            What the hook started.

        Raises:
            CommHookError: It raised, or returned no future.
        """
        try:
            future = self.hook(self._bucket(buffer))
        except Exception as error:
            got = f"{type(error).__name__}: {error}"
            raise CommHookError(**_message(self.plan, "raised", got)) from error
        # What a collective's work returns is no `torch.futures.Future`, but a base of
        # it that has no public name. So it is told by what tensors and work lack.
        if not hasattr(future, "then"):
            got = type(future).__name__
            raise CommHookError(**_message(self.plan, "returned no future", got))
        return PendingHook(future, buffer, self.plan)

    def _bucket(self, buffer: torch.Tensor) -> HookBucket:
        plan = self.plan
        return HookBucket(
            buffer,
            tuple(
                buffer.as_strided(member.local_shape, member.local_stride, offset)
                for member, offset in zip(plan.members, plan.offsets_numel, strict=True)
            ),
            tuple(member.name for member in plan.members),
            self.group,
            plan.index,
            self.is_last,
            self.state,
        )


@dataclass(frozen=True, slots=True, eq=False)
class PendingHook:
    """A reduction that a comm hook started.

    Attributes:
        future: Of the sums.
        buffer: Shape (N,), where they have to be.
        plan: Of the bucket.
    """

    future: Any
    buffer: torch.Tensor
    plan: BucketPlan

    def finish(self) -> None:
        """Order the current stream after the sums, and put them into the buffer.

        Raises:
            CommHookError: The future holds something else.
        """
        reduced: object = self.future.wait()
        if not isinstance(reduced, torch.Tensor):
            what, got = "returned a future of no tensor", type(reduced).__name__
            raise CommHookError(**_message(self.plan, what, got))
        if (reduced.shape, reduced.device) != (self.buffer.shape, self.buffer.device):
            what = "returned a future of another tensor"
            got = f"a tensor of shape {tuple(reduced.shape)} on {reduced.device}"
            raise CommHookError(**_message(self.plan, what, got))
        if reduced.data_ptr() != self.buffer.data_ptr():
            self.buffer.copy_(reduced)


def _message(plan: BucketPlan, what: str, got: str) -> dict[str, str]:
    shape = (plan.buffer_numel,)
    return {
        "headline": f"the comm hook {what} for bucket {plan.index}",
        "expected": f"a future of a tensor of shape {shape} on {plan.key.device}",
        "got": got,
        "where": f"bucket {plan.index}",
    }
