"""Modes of our synchronizer as subjects, each with the contract of the usual mode."""

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


class SumsInAHook(UsualMode):
    """Leaves the sums to a comm hook, which sums a copy of the bucket's buffer."""

    config = replace(UsualMode.config, comm_hook=_sum_of_copy)


class TellsWhatItUsed(UsualMode):
    """Leaves None where no rank has a gradient: a flag of each gradient tells the others."""

    config = replace(UsualMode.config, unused="keep_none")
