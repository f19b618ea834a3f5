"""Modes of our synchronizer as subjects, each with the contract of the usual mode."""

from collections.abc import Callable
from dataclasses import replace
from typing import ClassVar

import torch
import torch.distributed as dist
from torch import nn
from torch.futures import Future
from typing_extensions import override

from syncverify.scenario.contract import Capabilities
from syncverify.subjects.subject import resolve
from syncverify.synchronizer import GradientSynchronizer, HookBucket, SynchronizerConfig


class UsualMode(GradientSynchronizer):
    """The usual mode, and the base of the others."""

    capabilities: ClassVar[Capabilities] = resolve("synchronizer").capabilities
    config: ClassVar[SynchronizerConfig] = SynchronizerConfig(allow_local_only=True)

    def __init__(
        self, param_groups: list[list[nn.Parameter]], size_mb: float, required: int
    ) -> None:
        super().__init__(param_groups, size_mb, required, config=self.config)


class ScattersAndGathers(UsualMode):
    """Scatters sums, and gathers them again, so that every rank has them to show."""

    config = replace(UsualMode.config, mode="reduce_scatter")

    @override
    def wait(self, **_: object) -> None:
        super().wait()
        assert self._sequence is not None
        for bucket in self._sequence.buckets:
            if bucket.plan.num_shards > 1:
                if bucket.plan.scope:  # None for a bucket without elements
                    group = self._sequence.groups.get(bucket.plan.scope)
                    with bucket.borrow() as buffer:
                        owned = buffer.chunk(group.size())[group.rank()].clone()
                        dist.all_gather_single(buffer, owned, group=group)
                for view in bucket.views:
                    view.attach()


def _sum_of_copy(bucket: HookBucket) -> Future[torch.Tensor]:
    copy = bucket.buffer.clone()
    work = dist.all_reduce(copy, group=bucket.group, async_op=True)
    future: Future[torch.Tensor] = work.get_future().then(lambda done: done.value()[0])
    return future


class CollectsInCpp(UsualMode):
    """Counts the gradients that a hook in C++ has collected."""

    config = replace(UsualMode.config, gradient_hook="cpp")


class SumsInAHook(UsualMode):
    """Leaves the sums to a comm hook, which sums a copy of the bucket's buffer."""

    config = replace(UsualMode.config, comm_hook=_sum_of_copy)


class ChecksSumsOfAHook(SumsInAHook):
    """Leaves the sums to a comm hook, and checks that they are finite."""

    config = replace(SumsInAHook.config, check_finite=True)


class LeavesNone(UsualMode):
    """Clears gradients to None; the first gradients of a step are copied over the old bucket."""

    @override
    def zero_grad(self, **_: object) -> None:
        super().zero_grad(set_to_none=True)


class TellsWhatItUsed(UsualMode):
    """Leaves None where no rank has a gradient: a flag of each gradient tells the others."""

    config = replace(UsualMode.config, unused="keep_none")


class MarksByHand(GradientSynchronizer):
    """Adds gradients by hand, as zero-bubble schedules do, and marks every other one."""

    def __init__(
        self, param_groups: list[list[nn.Parameter]], size_mb: float, required: int
    ) -> None:
        config = SynchronizerConfig(allow_local_only=True)
        super().__init__(param_groups, size_mb, required, config=config)
        listed = {parameter: None for group in param_groups for parameter in group}
        self._trained = [each for each in listed if each.requires_grad]

    def run_micro_batch(
        self, compute_loss: Callable[[], torch.Tensor], *, is_last: bool
    ) -> None:
        """Leave half of the parameters to backward, and mark the others."""
        del is_last
        loss, by_hand = compute_loss(), self._trained[::2]
        by_backward = self._trained[1::2]
        gradients = torch.autograd.grad(loss, by_hand, retain_graph=bool(by_backward))
        if by_backward:
            loss.backward(inputs=by_backward)
        for parameter, gradient in zip(by_hand, gradients, strict=True):
            parameter.grad = (
                gradient if parameter.grad is None else parameter.grad + gradient
            )
            self.mark_ready(parameter)
