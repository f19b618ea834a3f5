"""Waits that are seldom seen."""

from datetime import timedelta
from typing import Any

import torch
import torch.distributed as dist
from typing_extensions import override

from studies.redteam.bases import sum_rest
from studies.redteam.program import right
from syncverify.subjects.bugbank.bases.side_streams import SideStreams
from syncverify.subjects.bugbank.bases.view_buckets import (
    Bucket,
    ReducesInWait,
    ViewBuckets,
)


@right(since="NCCL completes the works of a communicator in order", needs_nccl=True)
class WaitsForTheLastWork(ViewBuckets):
    """The last work of each communicator is waited for, and no other."""

    @override
    def bind(self) -> None:
        super().bind()
        self.last: dict[Any, dist.Work] = {}

    @override
    def launch(self, bucket: Bucket) -> None:
        super().launch(bucket)
        if bucket.work is not None:
            self.last[bucket.groups[0]] = bucket.work
            bucket.work = None

    @override
    def wait(self) -> None:
        for work in self.last.values():
            work.wait()
        self.last.clear()
        for bucket in self.buckets:
            for group in bucket.groups[1:]:
                dist.all_reduce(bucket.buffer, group=group)


@right(since="the host has seen that the work is completed")
class CopiesAfterPolling(SideStreams):
    """A side stream copies a bucket once `is_completed()` said yes."""

    @override
    def bind(self) -> None:
        super().bind()
        self.copier = torch.cuda.Stream()

    @override
    def finish(self, bucket: Bucket) -> None:
        if bucket.work is not None:
            while not bucket.work.is_completed():
                pass
            bucket.work = None
            with torch.cuda.stream(self.copier):
                for group in bucket.groups[1:]:
                    dist.all_reduce(bucket.buffer, group=group)
                bucket.buffer.copy_(bucket.buffer.clone())
            torch.cuda.current_stream().wait_stream(self.copier)


@right(since="the host has seen that the work is completed")
class PollsAlone(ViewBuckets):
    """`is_completed()` is polled until it is true, and nothing else waits."""

    @override
    def finish(self, bucket: Bucket) -> None:
        if bucket.work is not None:
            while not bucket.work.is_completed():
                pass
            sum_rest(bucket)


@right(since="a wait with a timeout blocks the host until the work is done")
class WaitsWithATimeout(SideStreams):
    """`wait(timeout)` blocks the host, so no stream has to wait."""

    @override
    def wait(self) -> None:
        for bucket in self.buckets:
            if bucket.work is not None:
                with torch.cuda.stream(self.comm):
                    bucket.work.wait(timedelta(seconds=60))
                sum_rest(bucket)


@right(since="the current stream is blocked until the work is done")
class BlocksTheStream(ViewBuckets):
    """`block_current_stream()` takes the place of `wait()`."""

    @override
    def finish(self, bucket: Bucket) -> None:
        if bucket.work is not None:
            bucket.work.block_current_stream()
            sum_rest(bucket)


@right(since="the host waits for all streams of the device")
class SynchronizesTheDevice(SideStreams):
    """`torch.cuda.synchronize()` takes the place of the final join."""

    @override
    def join(self) -> None:
        torch.cuda.synchronize()


@right(since="the host waits for the side stream")
class SynchronizesTheStream(SideStreams):
    """`stream.synchronize()` takes the place of the final join."""

    @override
    def join(self) -> None:
        self.comm.synchronize()


@right(since="a host that saw the event happen comes after it")
class QueriesAnEvent(SideStreams):
    """An event is polled until it has happened."""

    @override
    def join(self) -> None:
        event = torch.cuda.Event()
        event.record(self.comm)
        while not event.query():
            pass


@right(since="an event that is recorded again stands for the later moment")
class ReusesOneEvent(SideStreams):
    """One event serves for each fork and for the final join."""

    @override
    def bind(self) -> None:
        super().bind()
        self.event = torch.cuda.Event()

    @override
    def fork(self) -> None:
        self.event.record()
        self.comm.wait_event(self.event)

    @override
    def join(self) -> None:
        self.event.record(self.comm)
        self.event.wait()


@right(since="each bucket's stream is joined")
class HasAStreamPerBucket(ViewBuckets):
    """Each bucket has a stream of its own, which forks and joins."""

    overlaps_backward = True

    @override
    def bind(self) -> None:
        super().bind()
        self.streams = [torch.cuda.Stream() for _ in self.buckets]

    def stream_of(self, bucket: Bucket) -> torch.cuda.Stream:
        """Return the stream of a bucket."""
        return next(
            s for b, s in zip(self.buckets, self.streams, strict=True) if b is bucket
        )

    @override
    def launch(self, bucket: Bucket) -> None:
        stream = self.stream_of(bucket)
        stream.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(stream):
            super().launch(bucket)

    @override
    def finish(self, bucket: Bucket) -> None:
        with torch.cuda.stream(self.stream_of(bucket)):
            super().finish(bucket)
        torch.cuda.current_stream().wait_stream(self.stream_of(bucket))


@right(since="each future is waited for, and a callback's own future as well")
class ChainsFutures(ReducesInWait):
    """The later groups of a bucket are summed in a callback of the first one's future."""

    @override
    def finish(self, bucket: Bucket) -> None:
        if bucket.work is None:
            return
        future = bucket.work.get_future()
        bucket.work = None
        future.then(lambda done: done.value()[0].mul_(2)).wait()
        bucket.buffer.div_(2)
        for group in bucket.groups[1:]:
            dist.all_reduce(bucket.buffer, group=group)


@right(since="each future is waited for, in one place")
class CollectsFutures(ReducesInWait):
    """`collect_all` makes one future of those of all buckets, which has no device itself."""

    @override
    def wait(self) -> None:
        for bucket in self.order():
            self.launch(bucket)
        works = [bucket.work for bucket in self.buckets if bucket.work is not None]
        futures = [work.get_future() for work in works]
        for future in torch.futures.collect_all(futures).wait():
            future.wait()
        for bucket in self.buckets:
            sum_rest(bucket)
