"""Collectives that fail, or take long."""

from __future__ import annotations

import contextlib
from datetime import timedelta

import torch.distributed as dist
from typing_extensions import override

from studies.redteam.program import wrong
from syncverify.bugbank.bases.in_wait import ReducesInWait
from syncverify.bugbank.bases.view_buckets import Bucket, ViewBuckets


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
            bucket.work = None
            for group in bucket.groups[1:]:
                dist.all_reduce(bucket.buffer, group=group)
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
            bucket.work = None
            for group in bucket.groups[1:]:
                dist.all_reduce(bucket.buffer, group=group)


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
            bucket.work = None
            for group in bucket.groups[1:]:
                dist.all_reduce(bucket.buffer, group=group)
