"""Planted defects that show on one of NCCL and gloo only."""

from collections.abc import Iterator

import torch
import torch.distributed as dist
from torch.distributed.tensor import DTensor

from syncverify.bugbank.bases.plain_grads import PlainGrads
from syncverify.bugbank.bases.view_buckets import Bucket, ViewBuckets
from syncverify.scenario.contract import Capabilities


class RefillsAfterALaterWait(ViewBuckets):
    """Waits for the second of two collectives, then overwrites the input of the first.

    NCCL runs the collectives of a communicator one after the other, so the first one is
    over as well. gloo runs them side by side.
    """

    def wait(self) -> None:
        super().wait()
        sent, received = torch.ones(1), torch.empty(dist.get_world_size())
        first = dist.all_gather_single(received, sent, async_op=True)
        dist.all_reduce(torch.ones(1), async_op=True).wait()
        sent.zero_()
        first.wait()


class RefillsOnNccl(RefillsAfterALaterWait):
    """Correct: says that it runs on NCCL only."""

    capabilities = Capabilities(varying_accumulations=True, needs_nccl=True)


class RefillsInOrder(ViewBuckets):
    """Correct: waits for a collective before its input is overwritten."""

    def wait(self) -> None:
        super().wait()
        sent, received = torch.ones(1), torch.empty(dist.get_world_size())
        first = dist.all_gather_single(received, sent, async_op=True)
        second = dist.all_reduce(torch.ones(1), async_op=True)
        first.wait()
        sent.zero_()
        second.wait()


def sums(gradient: torch.Tensor) -> Iterator[tuple[torch.Tensor, dist.ProcessGroup]]:
    """Yield the local elements of a gradient with the group of each axis to sum over."""
    if isinstance(gradient, DTensor):
        for axis, placement in enumerate(gradient.placements):
            if placement.is_replicate():
                group = gradient.device_mesh.get_group(axis)
                yield gradient.to_local().detach(), group


class SendsOnWhatComes(PlainGrads):
    """Reduces to one rank, which sends the sum on; waits for the second collective only."""

    def reduce(self, gradient: torch.Tensor) -> None:
        for local, group in sums(gradient):
            root = dist.get_global_rank(group, 0)
            dist.reduce(local, root, group=group, async_op=True)
            sent = dist.broadcast(local, root, group=group, async_op=True)
            assert sent is not None
            self.await_sent(sent)

    def await_sent(self, work: dist.Work) -> None:
        """Wait for the sum that is sent on."""
        work.wait()


class SendsOnWhatComesOnNccl(SendsOnWhatComes):
    """Correct: says that it runs on NCCL only."""

    capabilities = Capabilities(needs_nccl=True)


class SendsOnAndForgets(SendsOnWhatComesOnNccl):
    """Waits for neither, which is wrong on NCCL too."""

    def await_sent(self, work: dist.Work) -> None:
        """Forget it."""


class SendsOnParts(PlainGrads):
    """Correct on NCCL: scatters sums and gathers them, and waits for the second only."""

    capabilities = Capabilities(needs_nccl=True)

    def reduce(self, gradient: torch.Tensor) -> None:
        for local, group in sums(gradient):
            size = dist.get_world_size(group)
            flat = local.new_zeros(-(-local.numel() // size) * size)
            flat[: local.numel()].copy_(local.view(-1))
            part = flat.new_empty(flat.numel() // size)
            dist.reduce_scatter_single(part, flat, group=group, async_op=True)
            gathered = dist.all_gather_single(flat, part, group=group, async_op=True)
            assert gathered is not None
            gathered.wait()
            local.view(-1).copy_(flat[: local.numel()])


class TakesReturnForDone(ViewBuckets):
    """Reduces on a side stream, and takes the call's return for its end, as on gloo."""

    def launch(self, bucket: Bucket) -> None:
        side = torch.cuda.Stream()
        side.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(side):
            for group in bucket.groups:
                dist.all_reduce(bucket.buffer, group=group)


class SendsOnPartsOnGpus(SendsOnParts):
    """Correct: is for GPUs, and so for NCCL, whether it says that or not."""

    capabilities = Capabilities(device="cuda")
