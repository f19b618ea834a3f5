"""Arithmetic that is unusual and exact, or as exact as the dtype allows."""

import torch
import torch.distributed as dist
from typing_extensions import override

from studies.redteam.bases import SumsOver, reduce_groups_of
from studies.redteam.program import right
from syncverify.subjects.bugbank.bases.main_grads import (
    AveragedMainGrads,
    Bucket,
    MainGrads,
)
from syncverify.subjects.bugbank.bases.view_buckets import AveragedViewBuckets
from syncverify.subjects.bugbank.bases.view_buckets import Bucket as ViewBucket


@right(since="each part is within half an ulp of its quotient", reduction="mean")
class DividesBefore(AveragedViewBuckets):
    """Parts are divided before they are summed, which rounds each of them."""

    @override
    def launch(self, bucket: ViewBucket) -> None:
        ranks = 1
        for group in bucket.groups:
            ranks *= group.size()
        bucket.buffer.div_(ranks)
        super().launch(bucket)

    @override
    def average(self, bucket: ViewBucket) -> None:
        pass


@right(since="`AVG` divides in the library", reduction="mean")
class LetsTheLibraryDivide(AveragedViewBuckets):
    """`AVG` over each group takes the place of a sum and a division."""

    @override
    def launch(self, bucket: ViewBucket) -> None:
        for group in bucket.groups:
            dist.all_reduce(bucket.buffer, dist.ReduceOp.AVG, group=group)

    @override
    def average(self, bucket: ViewBucket) -> None:
        pass


@right(since="a product with the reciprocal is within an ulp", reduction="mean")
class MultipliesByTheReciprocal(AveragedMainGrads):
    """Sums are multiplied by 1/n, and not divided by n."""

    @override
    def reduce(self, bucket: Bucket) -> None:
        MainGrads.reduce(self, bucket)
        bucket.buffer.mul_(1 / self.divisor(bucket))


@right(since="sums in float64 are rounded once")
class SumsInFloat64(MainGrads):
    """Buckets are kept and reduced in float64."""

    @override
    def dtype_of(self, parameter: torch.nn.Parameter) -> torch.dtype:
        return torch.float64


@right(since="pairs of numbers are summed one by one in a complex sum")
class SumsComplexNumbers(SumsOver):
    """Float32 parts are reduced as complex numbers."""

    @override
    def sum_over(self, part: torch.Tensor, group: dist.ProcessGroup) -> None:
        if part.dtype != torch.float32:
            super().sum_over(part, group)
            return
        pairs = torch.zeros(*part.shape, 2)
        pairs[..., 0] = part
        dist.all_reduce(pairs, group=group)
        part.copy_(pairs[..., 0])


@right(since="a factor of two before, and its inverse after, are exact")
class ScalesByTwo(SumsOver):
    """Parts are halved before the sum, and the sum is doubled."""

    @override
    def sum_over(self, part: torch.Tensor, group: dist.ProcessGroup) -> None:
        part.div_(2)
        dist.all_reduce(part, group=group)
        part.mul_(2)


@right(since="what was sent early is subtracted later, exactly")
class SumsNegatives(SumsOver):
    """The negative of each gradient is summed."""

    @override
    def sum_over(self, part: torch.Tensor, group: dist.ProcessGroup) -> None:
        negative = part.neg()
        dist.all_reduce(negative, group=group)
        torch.neg(negative, out=negative)
        part.copy_(negative)


@right(since="sums of 16-bit parts are taken in float32 and rounded once")
class WidensBeforeSending(SumsOver):
    """Each part is reduced in float32."""

    @override
    def sum_over(self, part: torch.Tensor, group: dist.ProcessGroup) -> None:
        if part.dtype == torch.float64:
            super().sum_over(part, group)
            return
        wide = part.float()
        dist.all_reduce(wide, group=group)
        part.copy_(wide)


@right(since="padding is cut off again")
class PadsToTheWorld(SumsOver):
    """Parts travel in buffers whose size is a power of two."""

    @override
    def sum_over(self, part: torch.Tensor, group: dist.ProcessGroup) -> None:
        size = 1
        while size < part.numel():
            size *= 2
        buffer = torch.zeros(size, dtype=part.dtype)
        buffer[: part.numel()].copy_(part.reshape(-1))
        dist.all_reduce(buffer, group=group)
        part.copy_(buffer[: part.numel()].view_as(part))


@right(since="a world of groups of one needs no collective")
class SkipsGroupsOfOne(SumsOver):
    """The sum of all groups is taken in one gather over both axes' ranks, one by one."""

    @override
    def reduce(self, gradient: torch.Tensor) -> None:
        for group in reversed(reduce_groups_of(gradient)):
            part = getattr(gradient, "to_local", lambda: gradient)()
            self.sum_over(part.detach(), group)
