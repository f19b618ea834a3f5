"""The reduction of a bucket by a comm hook, and the state of the hook.

A comm hook keeps tensors for a bucket. Those with an element for each of the buffer belong
to the gradients there: they are parted by parameter, for a checkpoint or because buckets
are cut anew. Others belong to the bucket, and end with it.
"""

from collections.abc import Callable, Mapping
from functools import partial
from typing import Any

import torch
import torch.distributed as dist

from syncverify.synchronizer.contract.comm_hook import CommHook, HookBucket
from syncverify.synchronizer.contract.errors import CommHookError
from syncverify.synchronizer.plan.grouping import BucketPlan

# By the name of a parameter and then by key of the hook; in the shape of the local gradient.
HookState = dict[str, dict[str, torch.Tensor]]


class HookTransport:
    """Reduces a bucket over the ranks of `group` by a call of the comm hook.

    `is_last` marks the bucket that is launched last in a step.
    """

    def __init__(
        self,
        hook: CommHook,
        plan: BucketPlan,
        group: dist.ProcessGroup,
        is_last: bool,  # noqa: FBT001  # of the hook's own interface
    ) -> None:
        self._hook, self._plan = hook, plan
        self._group, self._is_last = group, is_last
        self._state: dict[str, torch.Tensor] = {}  # what the hook keeps
        # Indices of the elements between and after the gradients, without flags.
        is_padding = torch.ones(plan.gradients_numel, dtype=torch.bool)
        for place in self._places(is_padding):
            place.fill_(False)
        self._padding = is_padding.nonzero().flatten().to(plan.key.device)

    def start(self, buffer: torch.Tensor) -> Callable[[], None]:
        """Start the reductions: of the gradients by the hook, and of flags.

        Returns:
            A function that orders the current stream after the sums, and writes them into
            the buffer.

        Raises:
            CommHookError: The hook raised, or returned no future.
        """
        numel = self._plan.gradients_numel
        gradients, flags = buffer[:numel], buffer[numel:]
        # A hook may send a part of its buffer, or round it; each flag has to arrive.
        sums = (
            dist.all_reduce(flags, group=self._group, async_op=True)
            if flags.numel()
            else None
        )
        bucket = HookBucket(
            buffer=gradients,
            views=tuple(self._places(gradients)),
            names=tuple(member.name for member in self._plan.members),
            group=self._group,
            index=self._plan.index,
            is_last=self._is_last,
            state=self._state,
        )
        try:
            future: object = self._hook(bucket)
        except Exception as error:
            raise self._error("raised", f"{type(error).__name__}: {error}") from error
        # The future of a collective is no `torch.futures.Future`, but an instance of its
        # base class, which has no public name. Tensors and work handles have no `then`.
        if not hasattr(future, "then"):
            raise self._error("returned no future", type(future).__name__)
        return partial(self._finish, future, gradients, sums)

    def _finish(
        self, future: Any, buffer: torch.Tensor, flags: dist.Work | None
    ) -> None:
        if flags is not None:
            flags.wait()
        reduced: object = future.wait()
        if not isinstance(reduced, torch.Tensor):
            got = type(reduced).__name__
            raise self._error("returned a future of no tensor", got)
        if (reduced.shape, reduced.device) != (buffer.shape, buffer.device):
            got = f"a tensor of shape {tuple(reduced.shape)} on {reduced.device}"
            raise self._error("returned a future of another tensor", got)
        if reduced.data_ptr() != buffer.data_ptr():
            buffer.copy_(reduced)
        # A norm reads across the padding, and the hook may have filled it.
        buffer.index_fill_(0, self._padding, 0)

    def state(self) -> HookState:
        """Return copies of what the hook keeps for gradients, by parameter."""
        shape = (self._plan.gradients_numel,)
        whole = {key: each for key, each in self._state.items() if each.shape == shape}
        found: HookState = {member.name: {} for member in self._plan.members if whole}
        for key, tensor in whole.items():
            places = self._places(tensor)
            for member, place in zip(self._plan.members, places, strict=True):
                found[member.name][key] = place.clone()
        return found

    def load_state(self, state: Mapping[str, Mapping[str, torch.Tensor]]) -> None:
        """Give the hook what `state` has returned, with zeros for other parameters."""
        numel, device = self._plan.gradients_numel, self._plan.key.device
        given = [state.get(member.name, {}) for member in self._plan.members]
        dtypes = {key: each.dtype for kept in given[::-1] for key, each in kept.items()}
        for key, dtype in dtypes.items():
            whole = self._state[key] = torch.zeros(numel, dtype=dtype, device=device)
            for kept, place in zip(given, self._places(whole), strict=True):
                if key in kept:
                    place.copy_(kept[key])

    def _places(self, buffer: torch.Tensor) -> list[torch.Tensor]:
        """Return the place of each gradient in a tensor of shape (N,)."""
        plan = self._plan
        return [
            buffer[offset:].as_strided(member.local_shape, member.local_stride)
            for member, offset in zip(plan.members, plan.offsets_numel, strict=True)
        ]

    def _error(self, mistake: str, got: str) -> CommHookError:
        plan = self._plan
        return CommHookError(
            f"the comm hook {mistake} for bucket {plan.index}",
            expected=f"a future of a tensor of shape ({plan.gradients_numel},)"
            f" on {plan.key.device}",
            got=got,
            where=f"bucket {plan.index}",
        )
