"""An order that is expected of futures, and that they do not give."""

from __future__ import annotations

from typing import Any

import torch
import torch.distributed as dist
from typing_extensions import override

from studies.redteam.program import wrong
from syncverify.bugbank.bases.in_wait import ReducesInWait
from syncverify.bugbank.bases.view_buckets import Bucket


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
