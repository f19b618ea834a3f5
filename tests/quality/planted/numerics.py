"""Planted defects in what is summed, over whom, and by what it is divided."""

import torch
import torch.distributed as dist
from torch import nn

from syncverify.bugbank.bases.main_grads import AveragedMainGrads, Bucket, MainGrads
from syncverify.bugbank.bases.placements import Groups, reduce_groups
from syncverify.bugbank.bases.view_buckets import ViewBuckets


class DividesByElements(AveragedMainGrads):
    """The mean divides by the number of elements instead of the number of ranks.

    Source: meta-pytorch/torchcomms#287.
    """

    def divisor(self, bucket: Bucket) -> int:
        return bucket.buffer.numel() if bucket.groups else 1


class DividesByWorldSize(AveragedMainGrads):
    """The mean divides by all ranks, also where few of them hold the same shard.

    Source: NVIDIA/Megatron-LM#5956.
    """

    def divisor(self, bucket: Bucket) -> int:
        return dist.get_world_size() if bucket.groups else 1


class ReducesOverFirstAxisOnly(ViewBuckets):
    """Only the data-parallel axis is reduced, not the other replicated one.

    Source: ByteDance-Seed/VeOmni#1059.
    """

    def groups_of(self, parameter: nn.Parameter) -> Groups:
        return super().groups_of(parameter)[:1]


class SkipsVectors(ViewBuckets):
    """Biases and norm weights, being small, are taken for local.

    Source: NVIDIA/Megatron-LM#1446.
    """

    def groups_of(self, parameter: nn.Parameter) -> Groups:
        return () if parameter.ndim == 1 else super().groups_of(parameter)


class ReducesOverDefaultGroup(MainGrads):
    """Where no axis is replicated the group is None, and None means all ranks.

    Source: verl-project/verl#7493.
    """

    def reduce(self, bucket: Bucket) -> None:
        for group in bucket.groups or (None,):
            dist.all_reduce(bucket.buffer, group=group)


class AddsResultToItself(MainGrads):
    """A group of one rank returns its input, which is added to the sum it already is.

    Source: NVIDIA/Megatron-LM#6660.
    """

    def reduce(self, bucket: Bucket) -> None:
        super().reduce(bucket)
        if not bucket.groups:
            reduced = bucket.buffer  # nothing to exchange
            bucket.buffer.add_(reduced)


class AccumulatesInParameterDtype(MainGrads):
    """Buckets have the parameter's dtype although its gradient has another.

    Source: deepspeedai/DeepSpeed#1800.
    """

    def dtype_of(self, parameter: nn.Parameter) -> torch.dtype:
        return parameter.dtype


class ReducesFirstAxisInBfloat16(MainGrads):
    """The first of two reductions sums in bfloat16, the second in full precision.

    Source: pytorch/pytorch#190627.
    """

    def reduce(self, bucket: Bucket) -> None:
        for index, group in enumerate(bucket.groups):
            narrow = index == 0 and len(bucket.groups) > 1
            sent = bucket.buffer.bfloat16() if narrow else bucket.buffer
            dist.all_reduce(sent, group=group)
            bucket.buffer.copy_(sent)


class ReducesWhatIsReduced(ViewBuckets):
    """wait() flushes buckets without work in flight: those that it just finished.

    Source: pytorch/torchtitan#2106.
    """

    def wait(self) -> None:
        super().wait()
        for bucket in self.buckets:
            if bucket.work is None:
                self.launch(bucket)
                self.finish(bucket)


class ScalesInEveryMicroBatch(AveragedMainGrads):
    """The mean is taken of what has accumulated so far, in each micro-batch.

    Source: pytorch/torchtitan#1733.
    """

    def on_accumulated(self, slot: torch.Tensor, parameter: nn.Parameter) -> None:
        super().on_accumulated(slot, parameter)
        slot.div_(contributors(parameter))

    def divisor(self, bucket: Bucket) -> int:
        return 1


def contributors(parameter: nn.Parameter) -> int:
    count = 1
    for group in reduce_groups(parameter):
        count *= group.size()
    return count
