"""Defects about streams, events and memory."""

from typing import Any

import torch
import torch.distributed as dist
from torch import nn
from typing_extensions import override

from studies.redteam.bases import Plain, Streams
from studies.redteam.program import wrong
from syncverify.scenario.contract import Capabilities
from syncverify.subjects.bugbank.bases.placements import local, local_grad
from syncverify.subjects.bugbank.bases.view_buckets import ViewBuckets


@wrong(
    trigger="2 ranks on a GPU and 2 gradients: the second copy to the host overwrites what the first copy back still reads"
)
class OnePinnedBuffer(Plain):
    """Reduced gradients are rounded trip through one pinned buffer, as an offloading optimizer does."""

    capabilities = Capabilities(device="cuda", varying_accumulations=True)

    @override
    def bind(self) -> None:
        sizes = [local(p).numel() * 8 for p in self.parameters]
        self.pinned = torch.empty(
            max(sizes, default=0), dtype=torch.uint8, pin_memory=True
        )
        self.back = torch.cuda.Stream()

    @override
    def wait(self) -> None:
        super().wait()
        for parameter in self.parameters:
            part = local_grad(parameter).detach()
            if not part.is_contiguous() or not part.numel():
                continue
            host = self.pinned[: part.nbytes].view(part.dtype).view(part.shape)
            # WRONG: the copy back of the previous gradient, on the other stream, may still read `host`.
            host.copy_(part, non_blocking=True)
            self.back.wait_stream(torch.cuda.current_stream())
            with torch.cuda.stream(self.back):
                part.copy_(host, non_blocking=True)
        torch.cuda.current_stream().wait_stream(self.back)

    @override
    def unbind(self) -> None:
        super().unbind()
        del self.pinned


@wrong(
    trigger="2 ranks, the last bucket is local (ordinary or sharded), and another one is reduced"
)
class JoinsIfLastReduced(Streams):
    """The caller's stream joins the side stream, unless there was nothing to reduce."""

    @override
    def wait(self) -> None:
        reduced = False
        with torch.cuda.stream(self.comm):
            for bucket in self.buckets:
                reduced = bucket.work is not None  # WRONG: `or` is missing
                self.finish(bucket)
        if reduced:
            torch.cuda.current_stream().wait_stream(self.comm)


@wrong(
    trigger="2 ranks and 2 gradients in a bucket: the side stream does not wait for the last of them"
)
class RecordsAtFirstGradient(Streams):
    """The side stream waits for an event of the stream that fills the bucket."""

    @override
    def bind(self) -> None:
        super().bind()
        for bucket in self.buckets:
            bucket.event = None

    @override
    def on_accumulated(self, bucket: Any, parameter: nn.Parameter) -> None:
        bucket.counts[parameter] += 1
        last = bucket.counts[parameter] == self.required
        if last and bucket.event is None:
            bucket.event = torch.cuda.Event()
            bucket.event.record()  # WRONG: once, when the first of the bucket's gradients is complete
        if self.is_ready(bucket):
            self.launch(bucket)

    @override
    def launch(self, bucket: Any) -> None:
        self.comm.wait_event(bucket.event)
        with torch.cuda.stream(self.comm):
            ViewBuckets.launch(self, bucket)

    @override
    def zero_grad(self) -> None:
        super().zero_grad()
        for bucket in self.buckets:
            bucket.event = None


@wrong(
    trigger="2 ranks, a bucket with an odd number of elements: its padded copy is freed while the side stream uses it"
)
class DropsPaddedCopy(Streams):
    """Buckets are padded to an even number of elements, since the network likes pairs."""

    @override
    def launch(self, bucket: Any) -> None:
        numel = bucket.buffer.numel()
        if numel % 2 == 0 or len(bucket.groups) != 1:
            super().launch(bucket)
            return
        padded = torch.nn.functional.pad(bucket.buffer, (0, 1))
        self.comm.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(self.comm):
            dist.all_reduce(padded, group=bucket.groups[0])
            bucket.buffer.copy_(padded[:numel])
        # WRONG: `padded.record_stream(self.comm)` is missing, and nothing holds it.


@wrong(
    trigger="2 ranks and 3 buckets: the third one fills the scratch buffer that the first one still reduces"
)
class TwoScratchBuffers(Streams):
    """Copies of buckets are reduced in two scratch buffers, which take turns."""

    @override
    def bind(self) -> None:
        super().bind()
        largest = max((b.buffer.nbytes for b in self.buckets), default=0)
        self.scratch = [
            torch.empty(largest, dtype=torch.uint8, device=b.buffer.device)
            for b in self.buckets[:2]
        ]
        self.num_launched = 0

    @override
    def launch(self, bucket: Any) -> None:
        raw = self.scratch[self.num_launched % len(self.scratch)]
        self.num_launched += 1
        copy = raw[: bucket.buffer.nbytes].view(bucket.buffer.dtype)
        # WRONG: waits for no earlier use of this scratch buffer
        copy.copy_(bucket.buffer)
        self.comm.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(self.comm):
            for group in bucket.groups:
                dist.all_reduce(copy, group=group)
            bucket.buffer.copy_(copy)

    @override
    def zero_grad(self) -> None:
        super().zero_grad()
        self.num_launched = 0

    @override
    def unbind(self) -> None:
        super().unbind()
        self.scratch = []


@wrong(
    trigger="2 replicated axes of 2 ranks: the caller waits for the reductions over the first axis alone"
)
class DoneBeforeSecondAxis(Streams):
    """The caller waits for an event of the side stream, which is recorded when the works are done."""

    @override
    def wait(self) -> None:
        done = torch.cuda.Event()
        with torch.cuda.stream(self.comm):
            for bucket in self.buckets:
                if bucket.work is not None:
                    bucket.work.wait()
            done.record()  # WRONG: the second axes follow
            ViewBuckets.wait(self)
        torch.cuda.current_stream().wait_event(done)
