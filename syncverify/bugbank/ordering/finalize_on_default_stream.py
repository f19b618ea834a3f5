"""The default stream waits for the reduction, and the step is on another one.

Reported in pytorch/pytorch#37790.
"""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace

import torch
from typing_extensions import override

from syncverify.bugbank.bases.side_streams import SideStreams
from syncverify.bugbank.bases.view_buckets import AveragedViewBuckets
from syncverify.bugbank.entry import reported


class AveragesAside(SideStreams):
    """Right: all of the caller's step runs on a stream that is not the default one."""

    capabilities = replace(AveragedViewBuckets.capabilities, overlaps_backward=True)

    @override
    def bind(self) -> None:
        self.compute = torch.cuda.Stream()
        with self.aside():
            super().bind()

    def run_micro_batch(
        self, compute_loss: Callable[[], torch.Tensor], *, is_last: bool
    ) -> None:
        """Run a micro-batch on the stream of the step."""
        with self.aside():
            compute_loss().backward()

    @override
    def wait(self) -> None:
        with self.aside():
            super().wait()
            for bucket in self.buckets:
                for group in bucket.groups:
                    bucket.buffer.div_(group.size())

    @override
    def zero_grad(self) -> None:
        with self.aside():
            super().zero_grad()

    @override
    def unbind(self) -> None:
        with self.aside():
            super().unbind()

    @contextmanager
    def aside(self) -> Iterator[None]:
        """Run something on the stream of the step."""
        caller = torch.cuda.current_stream()
        self.compute.wait_stream(caller)
        with torch.cuda.stream(self.compute):
            yield
        caller.wait_stream(self.compute)


@reported(
    "pytorch/pytorch#37790",
    trigger="2 ranks, a step on a stream that is not the default one",
    violates="bucket_is_exclusive_while_reducing",
    cause="touched_in_flight",
    uses_streams=True,
)
class JoinsDefaultStream(AveragesAside):
    """The default stream waits for the reduction, and the step is on another one."""

    @override
    def join(self) -> None:
        torch.cuda.default_stream().wait_stream(self.comm)
