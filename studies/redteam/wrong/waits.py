"""Collectives that fail or take long, and an order that is expected of futures."""

import contextlib
from datetime import timedelta
from typing import Any

import torch
import torch.distributed as dist
from typing_extensions import override

from studies.redteam.bases import sum_rest
from studies.redteam.program import wrong
from syncverify.subjects.bugbank.bases.view_buckets import (
    Bucket,
    ReducesInWait,
    ViewBuckets,
)


@wrong(trigger="2 ranks, a collective that fails", needs=("event=failing_collectives",))
class SwallowsErrors(ViewBuckets):
    """An error of a reduction is caught, and the local gradients are handed out."""

    @override
    def finish(self, bucket: Bucket) -> None:
        try:
            super().finish(bucket)
        except RuntimeError:
            bucket.work = None


@wrong(
    trigger="2 ranks, a collective that fails while it is polled",
    needs=("event=failing_collectives",),
)
class PollsOverErrors(ViewBuckets):
    """A work that says that it is completed is taken for a success."""

    @override
    def finish(self, bucket: Bucket) -> None:
        if bucket.work is not None and bucket.work.is_completed():
            sum_rest(bucket)
        super().finish(bucket)


@wrong(trigger="2 ranks, a collective that is late for 8 polls")
class GivesUpPolling(ViewBuckets):
    """After some polls a work is taken for completed."""

    @override
    def finish(self, bucket: Bucket) -> None:
        work = bucket.work
        if work is not None:
            for _ in range(8):
                if work.is_completed():
                    break
            sum_rest(bucket)


@wrong(
    trigger="2 ranks, a collective that outlasts the timeout",
    needs=("event=failing_collectives",),
)
class IgnoresTimeouts(ReducesInWait):
    """A wait with a timeout is followed by the next bucket, whatever came of it."""

    @override
    def finish(self, bucket: Bucket) -> None:
        if bucket.work is not None:
            with contextlib.suppress(RuntimeError):  # the next step waits longer
                bucket.work.wait(timedelta(milliseconds=1))
            sum_rest(bucket)


class ReducesByFutures(ReducesInWait):
    """Right: the future of each bucket is waited for."""

    @override
    def launch(self, bucket: Bucket) -> None:
        self.futures: list[Any] = getattr(self, "futures", [])
        for group in bucket.groups:
            work = dist.all_reduce(bucket.buffer, group=group, async_op=True)
            self.futures.append(work.get_future())
            self.after(bucket, self.futures[-1])

    def after(self, bucket: Bucket, future: Any) -> None:
        """Go on with a bucket."""
        future.wait()

    @override
    def finish(self, bucket: Bucket) -> None:
        pass


@wrong(trigger="2 ranks")
class AsksWhetherDone(ReducesByFutures):
    """A future that is done is not waited for."""

    @override
    def after(self, bucket: Bucket, future: Any) -> None:
        if not future.done():
            future.wait()


@wrong(trigger="2 ranks")
class TakesTheValue(ReducesByFutures):
    """The value of a future is taken, which orders nothing."""

    @override
    def after(self, bucket: Bucket, future: Any) -> None:
        bucket.buffer.copy_(future.value()[0].clone())


@wrong(trigger="2 ranks")
class ScalesInACallback(ReducesByFutures):
    """A callback writes the bucket, and the future before the callback is waited for."""

    @override
    def after(self, bucket: Bucket, future: Any) -> None:
        future.then(lambda done: done.value()[0].mul_(1))
        future.wait()


@wrong(trigger="2 ranks, 2 buckets")
class WaitsForTheLast(ReducesByFutures):
    """Of all callbacks the last one is waited for, as if callbacks ran in order."""

    last: torch.futures.Future[Any] | None = None

    @override
    def after(self, bucket: Bucket, future: Any) -> None:
        if len(bucket.groups) > 1:
            future.wait()
        else:
            copied = future.then(lambda done: bucket.buffer.mul_(1))
            self.last = copied

    @override
    def wait(self) -> None:
        super().wait()
        if self.last is not None:
            self.last.wait()
        self.last = None
