"""The harness on modes in which sums travel another way than by one all-reduce."""

from dataclasses import replace

import pytest
import torch
import torch.distributed as dist
from torch import nn
from torch.futures import Future

from synchronizer import GradientSynchronizer, HookBucket, SynchronizerConfig
from syncverify import verify
from syncverify.subjects.subject import resolve

Groups = list[list[nn.Parameter]]


class ScattersAndGathers(GradientSynchronizer):
    """Scatters sums, and gathers them again, so that every rank has them to show."""

    def __init__(self, param_groups: Groups, size_mb: float, required: int) -> None:
        config = SynchronizerConfig(mode="reduce_scatter")
        super().__init__(param_groups, size_mb, required, config=config)

    def wait(self, **_: object) -> None:
        super().wait()
        assert self._sequence is not None
        for bucket in self._sequence.buckets:
            if bucket.plan.num_shards > 1 and bucket.plan.scope:
                group = self._sequence.groups.get(bucket.plan.scope)
                with bucket.borrow() as buffer:
                    owned = buffer.chunk(group.size())[group.rank()].clone()
                    dist.all_gather_single(buffer, owned, group=group)
                for view in bucket.views:
                    view.attach()


class SumsInAHook(GradientSynchronizer):
    """Leaves the sums to a comm hook, which puts them elsewhere first."""

    # Simulated futures are waited for where they are asked for, in the hook; after an
    # error the ranks that are to launch the same are not there yet.
    capabilities = replace(
        resolve("synchronizer").capabilities,
        outside=frozenset({"event=raise_in_backward"}),
    )

    def __init__(self, param_groups: Groups, size_mb: float, required: int) -> None:
        config = SynchronizerConfig(comm_hook=self.hook, check_finite=True)
        super().__init__(param_groups, size_mb, required, config=config)

    @staticmethod
    def hook(bucket: HookBucket) -> Future[torch.Tensor]:
        copy = bucket.buffer.clone()
        work = dist.all_reduce(copy, group=bucket.group, async_op=True)
        future: Future[torch.Tensor] = work.get_future().then(lambda _: copy)
        return future


class LeavesNone(GradientSynchronizer):
    """Leaves the bucket as it is, for the first gradients to be copied over it."""

    def zero_grad(self, **_: object) -> None:
        super().zero_grad(set_to_none=True)


class TellsWhatItUsed(GradientSynchronizer):
    """Sends a flag with each gradient, written when it launches and read when it waits."""

    def __init__(self, param_groups: Groups, size_mb: float, required: int) -> None:
        config = SynchronizerConfig(unused="keep_none")
        super().__init__(param_groups, size_mb, required, config=config)


SUBJECTS = [ScattersAndGathers, SumsInAHook, LeavesNone, TellsWhatItUsed]


@pytest.mark.slow
@pytest.mark.parametrize("subject", SUBJECTS)
def test_the_harness_finds_nothing(subject: type[GradientSynchronizer]) -> None:
    verify(subject, backend="sim", ranks=4, examples=10, seed=0)
