"""Buckets with the wrong members, sizes or views."""

from collections.abc import Callable, Iterator

import torch
import torch.distributed as dist
from torch import nn
from typing_extensions import override

from syncverify.subjects.bugbank.bases.main_grads import Bucket as MainBucket
from syncverify.subjects.bugbank.bases.main_grads import MainGrads
from syncverify.subjects.bugbank.bases.placements import (
    like,
    local,
    local_bytes,
    local_grad,
)
from syncverify.subjects.bugbank.bases.view_buckets import (
    Bucket,
    FlagsMicroBatches,
    ViewBuckets,
)
from syncverify.subjects.bugbank.entry import reported


@reported(
    "bucket-not-padded-to-group",
    "NVIDIA/Megatron-LM#561",
    trigger="2 ranks, an odd number of elements",
    violates="gradient_equals_reference",
    cause="not_reduced",
    # Only the rest that no rank owns stays local.
    or_cause="partly_wrong",
)
class ShardsWithoutPadding(MainGrads):
    """Each rank reduces its share of a bucket, rounded down; no rank reduces the rest."""

    @override
    def reduce(self, bucket: MainBucket) -> None:
        for group in bucket.groups:
            share = bucket.buffer.numel() // group.size()
            covered = bucket.buffer[: share * group.size()]
            if share:
                shares = list(covered.split(share))
                reduced = torch.empty_like(shares[0])
                dist.reduce_scatter(reduced, shares, group=group)
                dist.all_gather(shares, reduced, group=group)


@reported(
    "buffer-borrowed-not-zeroed",
    "NVIDIA/Megatron-LM#4609",
    trigger="2 ranks, 2 steps",
    violates="zero_grad_clears",
    cause="gradient_left",
    # An accumulation into the gradient that was left shows first.
    or_cause="stale",
)
class ZeroesBucketsInFlight(ViewBuckets):
    """zero_grad() clears the buckets that still have work, after wait() finished it."""

    @override
    def zero_grad(self) -> None:
        for bucket in self.buckets:
            bucket.counts.clear()
            if bucket.work is not None or not bucket.groups:
                bucket.buffer.zero_()


class ReducesContiguous(MainGrads):
    """Right: a gradient that is not contiguous is reduced as a copy, and copied back."""

    features = frozenset({"memory_format=transposed"})

    @override
    def wait(self) -> None:
        for parameter in self.trainable():
            for group in self.groups_of(parameter):
                self.reduce_part(local_grad(parameter), group)

    @override
    def on_accumulated(self, slot: torch.Tensor, parameter: nn.Parameter) -> None:
        pass

    def reduce_part(self, part: torch.Tensor, group: dist.ProcessGroup) -> None:
        """Reduce a gradient in its place."""
        reduced = part.contiguous()
        dist.all_reduce(reduced, group=group)
        part.copy_(reduced)


@reported(
    "contiguous-copy-reduced-result-dropped",
    "NVIDIA/Megatron-LM#5337",
    trigger="2 ranks, a transposed parameter",
    violates="gradient_equals_reference",
    cause="result_dropped",
)
class DropsReducedCopy(ReducesContiguous):
    """A gradient that is not contiguous is reduced as a copy, which is then dropped."""

    @override
    def reduce_part(self, part: torch.Tensor, group: dist.ProcessGroup) -> None:
        dist.all_reduce(part.contiguous(), group=group)


@reported(
    "frozen-param-blocks-bucket",
    "pytorch/pytorch#14675",
    trigger="2 ranks, a frozen parameter beside another one",
    violates="gradient_equals_reference",
    cause="not_reduced",
)
class CountsFrozenParameters(ViewBuckets):
    """A frozen parameter has a place in a bucket, which never becomes complete."""

    @override
    def is_managed(self, parameter: nn.Parameter) -> bool:
        return True


@reported(
    "last-bucket-not-flushed",
    "facebookresearch/fairscale#435",
    trigger="2 ranks, a bucket that is not full",
    violates="gradient_equals_reference",
    cause="not_reduced",
)
class LosesLastBucket(MainGrads):
    """Buckets are sent when they are full; the last one, partly filled, never is."""

    @override
    def reduce(self, bucket: MainBucket) -> None:
        if sum(map(local_bytes, bucket.slots)) >= self.cap_bytes:
            super().reduce(bucket)


@reported(
    "placeholder-bucket-reduced",
    "deepspeedai/DeepSpeed#1214",
    trigger="a first parameter beyond the cap",
    violates="every_rank_finishes",
    cause="raised_IndexError",
    silent=False,
)
class FlushesWhatIsNotThere(ViewBuckets):
    """A parameter beyond the cap flushes the bucket before it, if there is one or not."""

    @override
    def plan(self) -> Iterator[list[nn.Parameter]]:
        for members in super().plan():
            if local_bytes(members[0]) > self.cap_bytes:
                yield []
            yield members


class RebuildsOnce(FlagsMicroBatches):
    """Right: buckets are made anew once, between micro-batches, and keep their content."""

    @override
    def bind(self) -> None:
        self.is_rebuilt = False
        super().bind()

    @override
    def run_micro_batch(
        self, compute_loss: Callable[[], torch.Tensor], *, is_last: bool
    ) -> None:
        super().run_micro_batch(compute_loss, is_last=is_last)
        if not self.is_rebuilt and not is_last:
            self.is_rebuilt = True
            for bucket in self.buckets:
                bucket.buffer = self.rebuilt(bucket.buffer)
                bucket.attach(bucket.buffer)

    def rebuilt(self, buffer: torch.Tensor) -> torch.Tensor:
        """Make another buffer in its place."""
        return buffer.clone()


@reported(
    "rebuild-drops-accumulated",
    "InfiniTensor/InfiniTrain#183",
    trigger="2 micro-batches",
    violates="accumulation_is_local_until_reduced",
    cause="micro_batch_missing",
)
class DropsWhatWasAccumulated(RebuildsOnce):
    """Gradients point to the new buckets; earlier accumulations stay in the old ones."""

    @override
    def rebuilt(self, buffer: torch.Tensor) -> torch.Tensor:
        return torch.zeros_like(buffer)


@reported(
    "reduce-scatter-storage-order",
    "pytorch/pytorch#130251",
    trigger="a transposed parameter",
    violates="gradient_equals_reference",
    cause="partly_wrong",
)
class HandsBackInTheOrderOfStorage(MainGrads):
    """Gradients are copied row by row, and handed back with the parameter's strides."""

    features = frozenset({"memory_format=transposed"})

    @override
    def wait(self) -> None:
        super().wait()
        for bucket in self.buckets:
            for parameter, slot in bucket.slots.items():
                part = local(parameter)
                strided = slot.as_strided(part.shape, part.stride())
                parameter.grad = like(parameter, strided)


class ListsOnce(ViewBuckets):
    """Right: looks at each parameter once."""

    features = frozenset({"listed=twice"})

    @override
    def is_managed(self, parameter: nn.Parameter) -> bool:
        is_new = parameter not in self.seen
        self.seen.add(parameter)
        return is_new and super().is_managed(parameter)

    @override
    def bind(self) -> None:
        self.seen: set[nn.Parameter] = set()
        super().bind()


@reported(
    "shared-param-bucketed-twice",
    "pytorch/pytorch#51929",
    trigger="2 ranks, a parameter that is listed twice",
    violates="gradient_equals_reference",
    cause="not_reduced",
    # Two listings of a parameter count one micro-batch as two.
    or_cause="reduced_early",
)
class CountsEachListing(ListsOnce):
    """A parameter that is listed twice has two places, and two hooks."""

    @override
    def is_managed(self, parameter: nn.Parameter) -> bool:
        return parameter.requires_grad


@reported(
    "view-rebound-to-hook-output",
    "pytorch/pytorch#43307",
    trigger="2 ranks, 2 steps",
    violates="gradient_equals_reference",
    cause="stale",
)
class RebindsViewsToResult(ViewBuckets):
    """Gradients become views into the result, but the old buffer goes on being sent."""

    @override
    def finish(self, bucket: Bucket) -> None:
        super().finish(bucket)
        bucket.attach(bucket.buffer.clone())  # the result of a communication hook

    @override
    def zero_grad(self) -> None:
        for bucket in self.buckets:
            bucket.counts.clear()
            for parameter in bucket.parameters:
                local_grad(parameter).zero_()
