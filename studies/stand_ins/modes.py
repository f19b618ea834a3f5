"""Modes of our synchronizer as subjects, each with the contract of the usual mode."""

from typing import Final

import torch
import torch.distributed as dist
from torch import nn
from torch.futures import Future
from typing_extensions import override

from synchronizer import GradientSynchronizer, HookBucket, SynchronizerConfig
from syncverify.scenario.contract import Capabilities
from syncverify.subjects.subject import resolve

Groups = list[list[nn.Parameter]]
_CONTRACT: Final = resolve("synchronizer").capabilities


class ScattersAndGathers(GradientSynchronizer):
    """Scatters sums, and gathers them again, so that every rank has them to show."""

    capabilities: Capabilities = _CONTRACT

    def __init__(self, param_groups: Groups, size_mb: float, required: int) -> None:
        config = SynchronizerConfig(mode="reduce_scatter")
        super().__init__(param_groups, size_mb, required, config=config)

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


class SumsInAHook(GradientSynchronizer):
    """Leaves the sums to a comm hook, which puts them elsewhere first."""

    capabilities: Capabilities = _CONTRACT

    def __init__(self, param_groups: Groups, size_mb: float, required: int) -> None:
        config = SynchronizerConfig(comm_hook=self.hook)
        super().__init__(param_groups, size_mb, required, config=config)

    @staticmethod
    def hook(bucket: HookBucket) -> Future[torch.Tensor]:
        """Sum a copy of the bucket."""
        copy = bucket.buffer.clone()
        work = dist.all_reduce(copy, group=bucket.group, async_op=True)
        future: Future[torch.Tensor] = work.get_future().then(lambda _: copy)
        return future


class TellsWhatItUsed(GradientSynchronizer):
    """Leaves None where no rank has a gradient, which ranks tell each other."""

    capabilities: Capabilities = _CONTRACT

    def __init__(self, param_groups: Groups, size_mb: float, required: int) -> None:
        config = SynchronizerConfig(unused="keep_none")
        super().__init__(param_groups, size_mb, required, config=config)
