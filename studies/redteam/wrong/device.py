"""Branches on the device, and copies to the host that the host reads before they are made."""

import torch
import torch.distributed as dist
from torch.distributed.tensor import DTensor
from typing_extensions import override

from studies.redteam.bases import local_of
from studies.redteam.program import wrong
from syncverify.subjects.bugbank.bases.plain_grads import PlainGrads
from syncverify.subjects.bugbank.bases.side_streams import SideStreams
from syncverify.subjects.bugbank.bases.view_buckets import (
    Bucket,
    ReducesInWait,
    ViewBuckets,
)


@wrong(trigger="2 ranks on a GPU", device="cuda")
class TrustsOneStreamOnGpus(SideStreams):
    """The final join is left out where `torch.cuda.is_available()` says yes."""

    @override
    def join(self) -> None:
        if not torch.cuda.is_available():
            super().join()


@wrong(trigger="2 ranks on a GPU", device="cuda")
class ForgetsWorkOnGpus(ViewBuckets):
    """A handle is waited for only if the gradients are on a CPU."""

    @override
    def finish(self, bucket: Bucket) -> None:
        if bucket.parameters[0].device.type == "cuda":
            bucket.work = None
        super().finish(bucket)


@wrong(trigger="2 ranks, the backend is called nccl", device="cuda")
class AveragesOnNccl(PlainGrads):
    """`AVG` takes the place of `SUM` where the backend offers it."""

    @override
    def reduce(self, gradient: torch.Tensor) -> None:
        if dist.get_backend() != "nccl":
            super().reduce(gradient)
        elif isinstance(gradient, DTensor):
            for axis, placement in enumerate(gradient.placements):
                if placement.is_replicate():
                    group = gradient.device_mesh.get_group(axis)
                    local = gradient.to_local().detach()
                    dist.all_reduce(local, dist.ReduceOp.AVG, group=group)


@wrong(trigger="2 ranks on a GPU: NCCL refuses host memory", device="cuda")
class StagesOnTheDefaultDevice(ReducesInWait):
    """A staging buffer is allocated without a device, and so on the host."""

    @override
    def launch(self, bucket: Bucket) -> None:
        staged = torch.zeros(bucket.buffer.numel(), dtype=bucket.buffer.dtype)
        staged.copy_(bucket.buffer)
        for group in bucket.groups:
            dist.all_reduce(staged, group=group)
        bucket.buffer.copy_(staged)


@wrong(trigger="2 ranks on a GPU", device="cuda")
class DropsSmallOnesOnCuda(PlainGrads):
    """Gradients of one element are left local where `is_cuda` holds."""

    @override
    def reduce(self, gradient: torch.Tensor) -> None:
        if not (gradient.is_cuda and gradient.numel() == 1):
            super().reduce(gradient)


@wrong(trigger="2 ranks, any gradient, on a GPU", device="cuda")
class DecidesOnAnEarlyCopy(ReducesInWait):
    """A flag is copied with `non_blocking`, and `.item()` of the copy decides at once."""

    @override
    def launch(self, bucket: Bucket) -> None:
        flag = bucket.buffer.abs().sum().to("cpu", non_blocking=True)
        if flag.item() >= 0:
            super().launch(bucket)


@wrong(trigger="any gradient, on a GPU", device="cuda")
class ReadsPinnedEarly(PlainGrads):
    """Gradients are copied to pinned memory, and the host reads them without a wait."""

    @override
    def wait(self) -> None:
        super().wait()
        self.norms = []
        for parameter in self.parameters:
            if parameter.grad is not None:
                part = local_of(parameter.grad)
                pinned = torch.empty(part.shape, dtype=part.dtype, pin_memory=True)
                pinned.copy_(part, non_blocking=True)
                self.norms.append(sum(pinned.flatten().tolist()))


@wrong(trigger="any gradient, on a GPU", device="cuda")
class ComparesAnEarlyCopy(PlainGrads):
    """`bool()` of a comparison on a copy that may not be there yet."""

    @override
    def wait(self) -> None:
        super().wait()
        for parameter in self.parameters:
            if parameter.grad is not None:
                copied = local_of(parameter.grad).to("cpu", non_blocking=True)
                if bool((copied != copied).any()):
                    raise RuntimeError("expected gradients without NaN")
