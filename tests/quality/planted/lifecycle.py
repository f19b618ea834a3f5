"""Planted defects in when something happens: within a step, between steps, at the end."""

import torch
from torch import nn

from syncverify.bugbank.bases.main_grads import AveragedMainGrads, MainGrads
from syncverify.bugbank.bases.placements import local
from syncverify.bugbank.bases.view_buckets import Bucket, ViewBuckets


class ReducesFirstMicroBatch(ViewBuckets):
    """A bucket is launched by the first micro-batch of a step instead of the last.

    Source: modelscope/FunASR#3472.
    """

    def is_ready(self, bucket: Bucket) -> bool:
        return all(bucket.counts[parameter] == 1 for parameter in bucket.parameters)


class ReducesEveryMicroBatch(ViewBuckets):
    """The flag that defers the reduction is set around the wrong calls.

    The mean of a mean is itself, so that all values are right: it is only slow.

    Source: pytorch/PiPPy#1133.
    """

    capabilities = AveragedMainGrads.capabilities

    def is_ready(self, bucket: Bucket) -> bool:
        return len({bucket.counts[parameter] for parameter in bucket.parameters}) == 1

    def launch(self, bucket: Bucket) -> None:
        super().launch(bucket)
        self.finish(bucket)
        for group in bucket.groups:
            bucket.buffer.div_(group.size())


class ReducesAgainInWait(ViewBuckets):
    """A wrapper inside of a wrapper reduces too, and a mean of means hides it.

    Source: meta-pytorch/torchrec#4121.
    """

    capabilities = AveragedMainGrads.capabilities

    def wait(self) -> None:
        for bucket in self.buckets:
            self.average(bucket)
            self.launch(bucket)
            self.average(bucket)

    def average(self, bucket: Bucket) -> None:
        self.finish(bucket)
        for group in bucket.groups:
            bucket.buffer.div_(group.size())


class LearnsCountOnce(ViewBuckets):
    """Windows of other lengths than the first one are reduced early, or never.

    Source: NovaSky-AI/SkyRL#2146.
    """

    def set_required_accumulations(self, require_accumulations: int) -> None:
        pass


class KeepsLastMicroBatchOnly(MainGrads):
    """Every backward is taken for the first of a step, and overwrites the others.

    Source: allenai/open-instruct#1498.
    """

    def on_accumulated(self, slot: torch.Tensor, parameter: nn.Parameter) -> None:
        self.moved[parameter] = 0
        super().on_accumulated(slot, parameter)


class CountsFromMinusOne(MainGrads):
    """The micro-step starts at 0 in the first window and at -1 in the others.

    Source: deepspeedai/DeepSpeed#6550.
    """

    def zero_grad(self) -> None:
        super().zero_grad()
        for parameter in self.moved:
            self.moved[parameter] = -1


class DropsViews(ViewBuckets):
    """zero_grad() sets gradients to None; the next ones are allocated elsewhere.

    Source: facebookresearch/fairscale#354.
    """

    def zero_grad(self) -> None:
        super().zero_grad()
        for bucket in self.buckets:
            for parameter in bucket.parameters:
                parameter.grad = None


class ZeroesBucketsInFlight(ViewBuckets):
    """zero_grad() clears the buckets that still have work, after wait() finished it.

    Source: NVIDIA/Megatron-LM#4609.
    """

    def zero_grad(self) -> None:
        for bucket in self.buckets:
            bucket.counts.clear()
            if bucket.work is not None or not bucket.groups:
                bucket.buffer.zero_()


class RebindsViewsToResult(ViewBuckets):
    """Gradients become views into the result, but the old buffer goes on being sent.

    Source: pytorch/pytorch#43307.
    """

    def finish(self, bucket: Bucket) -> None:
        super().finish(bucket)
        bucket.attach(bucket.buffer.clone())  # what a communication hook returned

    def zero_grad(self) -> None:
        for bucket in self.buckets:
            bucket.counts.clear()
            for parameter in bucket.parameters:
                local(parameter.grad).zero_()


class NeverWaits(ViewBuckets):
    """Work handles are not kept, so that wait() has nothing to wait for.

    Source: pytorch/pytorch#122807.
    """

    def launch(self, bucket: Bucket) -> None:
        super().launch(bucket)
        bucket.work = None


class KeepsHooks(ViewBuckets):
    """unbind() forgets its hooks without removing them.

    Source: pytorch/pytorch#63211.
    """

    def unbind(self) -> None:
        self.hooks.clear()
        super().unbind()
