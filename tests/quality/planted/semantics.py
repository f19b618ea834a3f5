"""Planted defects that show on one of NCCL and gloo only."""

import torch
import torch.distributed as dist

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


class TakesReturnForDone(ViewBuckets):
    """Reduces on a side stream, and takes the call's return for its end, as on gloo."""

    def launch(self, bucket: Bucket) -> None:
        side = torch.cuda.Stream()
        side.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(side):
            for group in bucket.groups:
                dist.all_reduce(bucket.buffer, group=group)
