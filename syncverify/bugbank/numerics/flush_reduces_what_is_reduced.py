"""Reported in pytorch/pytorch#115967."""

from __future__ import annotations

from typing_extensions import override

from syncverify.bugbank.bases.view_buckets import ViewBuckets
from syncverify.bugbank.entry import Entry


class ReducesWhatIsReduced(ViewBuckets):
    """wait() flushes buckets without work in flight: those that it just finished."""

    @override
    def wait(self) -> None:
        super().wait()
        for bucket in self.buckets:
            if bucket.work is None:
                self.launch(bucket)
                self.finish(bucket)


ENTRY = Entry(
    subject=ReducesWhatIsReduced,
    twin=ViewBuckets,
    source="pytorch/pytorch#115967",
    trigger="2 ranks",
    silent=True,
    property="gradient_equals_reference",
    cause="reduced_twice",
)
