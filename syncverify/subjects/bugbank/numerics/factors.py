"""Sums over the wrong ranks, and wrong factors."""

import math

import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.tensor import DTensor
from typing_extensions import override

from syncverify.subjects.bugbank.bases.main_grads import (
    AveragedMainGrads,
    Bucket,
    MainGrads,
)
from syncverify.subjects.bugbank.bases.placements import Groups
from syncverify.subjects.bugbank.bases.view_buckets import ViewBuckets
from syncverify.subjects.bugbank.entry import reported


@reported(
    "avg-divides-by-numel",
    "meta-pytorch/torchcomms#287",
    trigger="2 ranks, a bucket with other than 2 elements",
    violates="gradient_equals_reference",
    cause="scaled",
)
class DividesByElements(AveragedMainGrads):
    """The mean divides by the number of elements instead of the number of ranks."""

    @override
    def divisor(self, bucket: Bucket) -> int:
        return bucket.buffer.numel() if bucket.groups else 1


@reported(
    "avg-single-rank-tail-lost",
    "NVIDIA/nccl#1950",
    trigger="1 rank",
    violates="unreduced_stay_local",
    cause="never_written",
)
class LosesTailOfOneRank(AveragedMainGrads):
    """A mean over one rank is written without its last 8 elements."""

    @override
    def reduce(self, bucket: Bucket) -> None:
        super().reduce(bucket)
        if not bucket.groups:
            bucket.buffer[-8:] = 0


@reported(
    "default-group-for-no-group",
    "verl-project/verl#7494",
    trigger="2 ranks, a parameter that is cut over all of them",
    violates="collectives_match_across_ranks",
    cause="foreign_contribution",
)
class ReducesOverDefaultGroup(MainGrads):
    """Where no axis is replicated the group is None, and None means all ranks."""

    @override
    def reduce(self, bucket: Bucket) -> None:
        for group in bucket.groups or (None,):
            dist.all_reduce(bucket.buffer, group=group)


@reported(
    "degenerate-mesh-reduces-wrong-dim",
    "verl-project/verl#7493",
    trigger="a mesh of (2, 1)",
    violates="gradient_equals_reference",
    cause="not_reduced",
)
class ReducesOverAxisOfOne(MainGrads):
    """Where a mesh has an axis of one rank, that one is reduced over, and no other."""

    @override
    def groups_of(self, parameter: nn.Parameter) -> Groups:
        if isinstance(parameter, DTensor) and 1 in parameter.device_mesh.shape:
            mesh = parameter.device_mesh
            return (mesh.get_group(mesh.shape.index(1)),)
        return super().groups_of(parameter)


@reported(
    "double-accumulation-division",
    "huggingface/transformers#40052",
    trigger="2 micro-batches",
    violates="unreduced_stay_local",
    cause="scaled",
)
class DividesByMicroBatches(AveragedMainGrads):
    """The loss is divided by the number of micro-batches, and backward divides again."""

    @override
    def divisor(self, bucket: Bucket) -> int:
        return super().divisor(bucket) * self.required


@reported(
    "dp-group-ignores-sequence-parallel",
    "ByteDance-Seed/VeOmni#1059",
    trigger="a mesh of (2, 2), a parameter replicated over both axes",
    violates="gradient_equals_reference",
    cause="rank_contribution_missing",
)
class ReducesOverFirstAxisOnly(ViewBuckets):
    """Only the data-parallel axis is reduced, not the other replicated one."""

    @override
    def groups_of(self, parameter: nn.Parameter) -> Groups:
        return super().groups_of(parameter)[:1]


@reported(
    "expert-divisor-wrong-mesh",
    "NVIDIA/Megatron-LM#5956",
    trigger="4 ranks in a mesh of (2, 2), a parameter that is cut over one axis",
    violates="gradient_equals_reference",
    cause="scaled",
)
class DividesByWorldSize(AveragedMainGrads):
    """The mean divides by all ranks, also where few of them hold the same shard."""

    @override
    def divisor(self, bucket: Bucket) -> int:
        return dist.get_world_size() if bucket.groups else 1


@reported(
    "pp-path-unnormalised",
    "pytorch/torchtitan#2972",
    trigger="2 ranks",
    violates="gradient_equals_reference",
    cause="scaled",
)
class ForgetsToDivideOnePath(AveragedMainGrads):
    """One of two paths through the code sums and does not divide."""

    @override
    def divisor(self, bucket: Bucket) -> int:
        is_other_path = bucket is self.buckets[-1]
        return 1 if is_other_path else super().divisor(bucket)


@reported(
    "premul-bf16-factor-width",
    "pytorch/pytorch#190745",
    trigger="2 ranks, a bfloat16 gradient",
    violates="gradient_equals_reference",
    cause="scaled",
    # The half that is read may be 0.
    or_cause="erased",
)
class ReadsHalfOfFactor(AveragedMainGrads):
    """The factor of a bfloat16 mean is stored in 4 bytes, of which 2 are read."""

    @override
    def reduce(self, bucket: Bucket) -> None:
        super().reduce(bucket)
        if bucket.groups and bucket.buffer.dtype is torch.bfloat16:
            stored = torch.tensor([1 / self.divisor(bucket)])
            read, _ = stored.view(torch.bfloat16)
            bucket.buffer.mul_(read)


@reported(
    "scale-accumulated-grad-each-window",
    "pytorch/torchtitan#1733",
    trigger="2 ranks, 2 micro-batches",
    violates="gradient_equals_reference",
    cause="scaled",
)
class ScalesInEveryMicroBatch(AveragedMainGrads):
    """Each micro-batch divides all that has accumulated so far."""

    @override
    def on_accumulated(self, slot: torch.Tensor, parameter: nn.Parameter) -> None:
        super().on_accumulated(slot, parameter)
        slot.div_(math.prod(group.size() for group in self.groups_of(parameter)))

    @override
    def divisor(self, bucket: Bucket) -> int:
        return 1


@reported(
    "scale-once-per-stage",
    "deepspeedai/DeepSpeed#8154",
    trigger="2 ranks, 2 buckets",
    violates="gradient_equals_reference",
    cause="scaled",
)
class ScalesInEachStage(AveragedMainGrads):
    """Each stage scales gradients that the stage after it has scaled already."""

    @override
    def divisor(self, bucket: Bucket) -> int:
        stages_after = len(self.buckets) - 1 - self.buckets.index(bucket)
        return int(super().divisor(bucket) ** (1 + stages_after))
