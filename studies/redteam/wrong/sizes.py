"""Defects that wait for large numbers, and buckets that break the promise of the cap."""

from collections.abc import Iterator

import torch
import torch.distributed as dist
from torch import nn
from typing_extensions import override

from studies.redteam.bases import gathered, local_of, reduce_groups_of, sum_rest
from studies.redteam.program import wrong
from syncverify.subjects.bugbank.bases.plain_grads import PlainGrads
from syncverify.subjects.bugbank.bases.view_buckets import (
    Bucket,
    ReducesInWait,
    ViewBuckets,
)

_CHUNK = 512


@wrong(trigger="2 ranks, a bucket of 513 elements")
class DropsTheRest(ReducesInWait):
    """Large buckets are reduced in chunks, and what is left over is not reduced."""

    @override
    def launch(self, bucket: Bucket) -> None:
        numel = bucket.buffer.numel()
        if numel <= _CHUNK:
            super().launch(bucket)
            return
        for start in range(0, numel - _CHUNK + 1, _CHUNK):
            for group in bucket.groups:
                dist.all_reduce(bucket.buffer[start : start + _CHUNK], group=group)


@wrong(trigger="2 ranks, 9 parameters in one bucket")
class CountsInOneByte(ViewBuckets):
    """A mask of 8 bits tells which parameters of a bucket came."""

    @override
    def bind(self) -> None:
        self.masks: dict[int, int] = {}
        super().bind()

    @override
    def on_accumulated(self, bucket: Bucket, parameter: nn.Parameter) -> None:
        bucket.counts[parameter] += 1
        if bucket.counts[parameter] < self.required:
            return
        bit = next(n for n, p in enumerate(bucket.parameters) if p is parameter) % 8
        mask = self.masks.get(id(bucket), 0) | 1 << bit
        self.masks[id(bucket)] = mask
        wanted = (1 << min(8, sum(p.requires_grad for p in bucket.parameters))) - 1
        if mask == wanted and bucket.work is None:
            self.launch(bucket)

    @override
    def zero_grad(self) -> None:
        self.masks.clear()
        super().zero_grad()


@wrong(trigger="5 steps of 2 ranks")
class TrustsALaterStep(PlainGrads):
    """After four steps the program counts as steady, and a reduction in two is left out."""

    @override
    def bind(self) -> None:
        self.step = 0

    @override
    def wait(self) -> None:
        if self.step < 4 or self.step % 2:
            super().wait()

    @override
    def zero_grad(self) -> None:
        self.step += 1
        super().zero_grad()


@wrong(trigger="2 ranks, 5 micro-batches")
class CountsInTwoBits(PlainGrads):
    """Micro-batches are counted modulo 4, and a count of one is said to be the last."""

    @override
    def bind(self) -> None:
        self.counts = dict.fromkeys(self.parameters, 0)
        for parameter in self.parameters:
            hook = parameter.register_post_accumulate_grad_hook(self.note)
            self.handles.append(hook)

    def note(self, parameter: nn.Parameter) -> None:
        """Count a call, and reduce at the last one."""
        self.counts[parameter] += 1
        is_last = (self.counts[parameter] - 1) % 4 == (self.required - 1) % 4
        if is_last and parameter.grad is not None:
            self.reduce(parameter.grad)

    @override
    def wait(self) -> None:
        self.counts = dict.fromkeys(self.parameters, 0)


@wrong(trigger="2 ranks, 3 parameter groups")
class KnowsTwoGroups(ViewBuckets):
    """Groups beyond the second one are not managed."""

    @override
    def plan(self) -> Iterator[list[nn.Parameter]]:
        self.param_groups = self.param_groups[:2]
        yield from super().plan()


@wrong(trigger="6 ranks on one axis", max_ranks=8)
class FoldsOnePair(PlainGrads):
    """A sum by recursive doubling folds only one rank beyond the power of two."""

    @override
    def reduce(self, gradient: torch.Tensor) -> None:
        for group in reduce_groups_of(gradient):
            if group.size() < 5:
                dist.all_reduce(local_of(gradient), group=group)
            else:
                self.fold(local_of(gradient), group)

    def fold(self, part: torch.Tensor, group: dist.ProcessGroup) -> None:
        """Sum over a power of two and one rank more."""
        part.copy_(torch.stack(gathered(part, group)[:5]).sum(0))


@wrong(trigger="2 ranks, more than 4 buckets in flight")
class WrapsARing(ReducesInWait):
    """Handles are kept in a ring of 4, and the fifth one takes the place of the first."""

    @override
    def bind(self) -> None:
        super().bind()
        self.ring: list[dist.Work | None] = [None] * 4

    @override
    def launch(self, bucket: Bucket) -> None:
        position = next(n for n, each in enumerate(self.buckets) if each is bucket)
        super().launch(bucket)
        self.ring[position % 4] = bucket.work

    @override
    def finish(self, bucket: Bucket) -> None:
        position = next(n for n, each in enumerate(self.buckets) if each is bucket)
        if bucket.work is not self.ring[position % 4]:
            sum_rest(bucket)
        super().finish(bucket)


@wrong(trigger="2 ranks, a gradient of more than 255 elements")
class MasksInBytes(PlainGrads):
    """The number of elements to send is kept in a byte."""

    @override
    def reduce(self, gradient: torch.Tensor) -> None:
        part = local_of(gradient)
        count = int(torch.tensor(part.numel() % 256, dtype=torch.uint8))
        flat = part.reshape(-1)
        sent = flat[:count] if count else flat
        for group in reduce_groups_of(gradient):
            dist.all_reduce(sent, group=group)
        if not part.is_contiguous():
            part.copy_(flat.view_as(part))


@wrong(trigger="2 parameters of one kind, a cap between them", keeps_bucket_cap=True)
class IgnoresTheCap(ViewBuckets):
    """All parameters of a kind share one bucket, whatever the cap says."""

    @override
    def plan(self) -> Iterator[list[nn.Parameter]]:
        self.cap_bytes = float("inf")
        yield from super().plan()


@wrong(trigger="2 parameters, a cap that splits", keeps_bucket_cap=True)
class CapsInElements(ViewBuckets):
    """The cap in bytes is compared with a number of elements of four bytes."""

    @override
    def plan(self) -> Iterator[list[nn.Parameter]]:
        self.cap_bytes *= 4
        yield from super().plan()


@wrong(trigger="2 ranks, sharded parameters, a cap that splits", keeps_bucket_cap=True)
class CapsGlobalBytes(ViewBuckets):
    """The cap is multiplied by the number of ranks, as if it counted global bytes."""

    @override
    def plan(self) -> Iterator[list[nn.Parameter]]:
        groups = [p for group in self.param_groups for p in group]
        meshes = [getattr(parameter, "device_mesh", None) for parameter in groups]
        self.cap_bytes *= max([mesh.size() for mesh in meshes if mesh] or [1])
        yield from super().plan()
