"""Steps of several micro-batches, and the moment of their reduction."""

from itertools import takewhile

import torch
from torch import nn
from typing_extensions import override

from syncverify.subjects.bugbank.bases.careful import Careful
from syncverify.subjects.bugbank.bases.main_grads import MainGrads
from syncverify.subjects.bugbank.bases.plain_grads import ReducesEachMicroBatch
from syncverify.subjects.bugbank.bases.side_streams import SideStreams
from syncverify.subjects.bugbank.bases.view_buckets import (
    AveragedViewBuckets,
    Bucket,
    FlagsMicroBatches,
    ViewBuckets,
)
from syncverify.subjects.bugbank.entry import reported


@reported(
    "armed-by-last-forward-fires-early",
    "meta-pytorch/torchrec#4758",
    trigger="2 ranks, 2 micro-batches",
    violates="accumulation_is_local_until_reduced",
    cause="reduced_early",
)
class FiresOneBackwardEarly(ViewBuckets):
    """The last forward arms the reduction, and one more backward is still to come."""

    @override
    def is_ready(self, bucket: Bucket) -> bool:
        awaited = max(1, self.required - 1)
        return all(bucket.counts[p] == awaited for p in bucket.parameters)


@reported(
    "dispatch-on-first-microbatch",
    "InfiniTensor/InfiniTrain#213",
    trigger="2 ranks, 2 micro-batches",
    violates="accumulation_is_local_until_reduced",
    cause="reduced_early",
)
class DispatchesOnce(SideStreams):
    """The first micro-batch starts the reduction, and a flag keeps later ones from it."""

    @override
    def is_ready(self, bucket: Bucket) -> bool:
        return all(bucket.counts[p] == 1 for p in bucket.parameters)


@reported(
    "flag-toggled-only-in-cooldown",
    "huggingface/picotron#5",
    trigger="2 ranks, 1 micro-batch",
    violates="gradient_equals_reference",
    cause="not_reduced",
)
class SyncsInCooldown(FlagsMicroBatches):
    """Reductions are turned on between phases, and a stage with one phase has none."""

    @override
    def may_reduce(self, bucket: Bucket) -> bool:
        return self.required > 1 and super().may_reduce(bucket)


@reported(
    "micro-step-off-by-one-first-window",
    "deepspeedai/DeepSpeed#6550",
    trigger="2 steps of 2 micro-batches",
    violates="gradient_equals_reference",
    cause="micro_batch_missing",
)
class CountsFromMinusOne(MainGrads):
    """The micro-step starts at 0 in the first window and at -1 in the others."""

    @override
    def zero_grad(self) -> None:
        super().zero_grad()
        for parameter in self.moved:
            self.moved[parameter] = -1


@reported(
    "no-sync-around-backward-only",
    "pytorch/PiPPy#1133",
    trigger="2 ranks, 2 micro-batches",
    violates="accumulation_is_local_until_reduced",
    cause="reduced_early",
    twin=AveragedViewBuckets,
)
class ReducesEveryMicroBatch(ViewBuckets):
    """The flag that defers the reduction is set around the wrong calls.

    The mean of a mean is itself, so that all values are right: it is only slow.
    """

    capabilities = AveragedViewBuckets.capabilities

    @override
    def is_ready(self, bucket: Bucket) -> bool:
        return len({bucket.counts[parameter] for parameter in bucket.parameters}) == 1

    @override
    def launch(self, bucket: Bucket) -> None:
        super().launch(bucket)
        self.finish(bucket)
        for group in bucket.groups:
            bucket.buffer.div_(group.size())


class DefersEachBucket(FlagsMicroBatches):
    """Right: no bucket is reduced before the micro-batch with the flag."""

    @override
    def may_reduce(self, bucket: Bucket) -> bool:
        return self.is_syncing or bucket not in self.deferred()

    def deferred(self) -> list[Bucket]:
        """List the buckets that wait for the flag."""
        return self.buckets


@reported(
    "no-sync-loop-break",
    "speechbrain/speechbrain#2010",
    trigger="2 ranks, 2 micro-batches, a bucket without a group before another",
    violates="accumulation_is_local_until_reduced",
    cause="reduced_early",
)
class StopsAtUnwrapped(DefersEachBucket):
    """The loop that defers buckets stops at the first one without a group."""

    @override
    def deferred(self) -> list[Bucket]:
        return [*takewhile(lambda bucket: bucket.groups, self.buckets)]


@reported(
    "ready-count-learned-once",
    "NovaSky-AI/SkyRL#2146",
    trigger="2 ranks, windows of 1 and then of 2 micro-batches",
    violates="accumulation_is_local_until_reduced",
    cause="reduced_early",
)
class LearnsCountOnce(ViewBuckets):
    """A window whose length differs from that of the first is reduced early, or never."""

    @override
    def set_required_accumulations(self, require_accumulations: int) -> None:
        pass


@reported(
    "step-without-last-micro-batch",
    "huggingface/accelerate#2125",
    trigger="2 ranks, a step with one backward fewer than agreed",
    violates="gradient_equals_reference",
    cause="not_reduced",
    # The backward may be missing on some ranks, and the others wait for these.
    or_cause="deadlock",
)
class WaitsForWhatWasLaunched(Careful):
    """`wait()` returns with gradients that were not reduced."""

    features = frozenset({"event=missing_backward"})

    @override
    def launch_rest(self) -> None:
        pass


@reported(
    "sync-first-instead-of-last",
    "modelscope/FunASR#3472",
    trigger="2 ranks, 2 micro-batches",
    violates="accumulation_is_local_until_reduced",
    cause="reduced_early",
)
class ReducesFirstMicroBatch(ViewBuckets):
    """A bucket is launched by the first micro-batch of a step instead of the last."""

    @override
    def is_ready(self, bucket: Bucket) -> bool:
        return all(bucket.counts[parameter] == 1 for parameter in bucket.parameters)


@reported(
    "sync-flag-doubles-as-step-flag",
    "huggingface/accelerate#2790",
    trigger="2 micro-batches that are reduced each",
    violates="unreduced_stay_local",
    cause="micro_batch_missing",
)
class StepsWhenItSyncs(ReducesEachMicroBatch):
    """One flag says both to reduce and to start over, and it is set each time."""

    @override
    def add(self, parameter: nn.Parameter, reduced: torch.Tensor) -> None:
        self.sums.pop(parameter, None)
        super().add(parameter, reduced)


@reported(
    "tail-window-dropped",
    "horovod/horovod#546",
    trigger="2 ranks, a window that ends early",
    violates="gradient_equals_reference",
    cause="not_reduced",
    twin=Careful,
)
class LeavesTail(WaitsForWhatWasLaunched):
    """A window that ends early never becomes complete, and its rest is not launched."""

    features = frozenset({"event=tail"})
