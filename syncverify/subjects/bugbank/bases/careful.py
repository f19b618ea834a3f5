"""Every lifecycle is gone through rightly, or refused.

Buckets are launched in one order on all ranks, and `wait()` launches the incomplete
ones, so no accumulation has to come. The synchronizer refuses a `.grad` that is not
its view, an accumulation too many, and a parameter that was frozen at `bind()` and
is trained.
"""

from __future__ import annotations

import itertools

import torch
from torch import nn
from typing_extensions import override

from syncverify.subjects.bugbank.bases.placements import local
from syncverify.subjects.bugbank.bases.side_streams import SideStreams
from syncverify.subjects.bugbank.bases.view_buckets import Bucket

LIFECYCLE = ("event", "launch", "readiness", "used", "synchronizers")


class Careful(SideStreams):
    """Launches buckets in one order on all ranks, incomplete ones in `wait()`."""

    features = frozenset(LIFECYCLE)
    # A step may begin with a parameter that
    # other ranks never use.
    overlaps_backward = False

    @override
    def bind(self) -> None:
        self.num_launched = 0
        self.is_reduced = False
        listed = itertools.chain(*self.param_groups)
        self.frozen = [parameter for parameter in listed if not parameter.requires_grad]
        super().bind()

    @override
    def on_accumulated(self, bucket: Bucket, parameter: nn.Parameter) -> None:
        self.fork()
        self.check_view(bucket, parameter)
        bucket.counts[parameter] += 1
        self.check_count(bucket, parameter)
        self.launch_ready()

    def check_view(self, bucket: Bucket, parameter: nn.Parameter) -> None:
        """Refuse a gradient that does not lie in its bucket, by `RuntimeError`."""
        own = None
        if parameter.grad is not None:
            own = local(parameter.grad).untyped_storage().data_ptr()
        if own != bucket.buffer.untyped_storage().data_ptr():
            raise RuntimeError("expected .grad to be the view that bind() made of it")

    def check_views(self) -> None:
        """Refuse gradients that do not lie in their buckets, by `RuntimeError`."""
        for bucket in self.buckets:
            for parameter in bucket.parameters:
                self.check_view(bucket, parameter)

    def check_frozen(self) -> None:
        """Refuse a parameter that was frozen at `bind()` and is trained, by `RuntimeError`."""
        if any(parameter.requires_grad for parameter in self.frozen):
            raise RuntimeError(
                "expected a frozen parameter to stay frozen until bind()"
            )

    def check_count(self, bucket: Bucket, parameter: nn.Parameter) -> None:
        """Refuse a backward too many, by `RuntimeError`."""
        if bucket.counts[parameter] > self.required:
            raise RuntimeError(
                f"expected {self.required} backwards in a step, got more"
            )

    def launch_ready(self) -> None:
        """Launch complete buckets, up to the first incomplete one."""
        while self.num_launched < len(self.buckets):
            bucket = self.buckets[self.num_launched]
            if not self.is_ready(bucket):
                return
            self.launch(bucket)

    @override
    def launch(self, bucket: Bucket) -> None:
        self.num_launched += 1
        super().launch(bucket)

    def launch_rest(self) -> None:
        """Launch the buckets that were not launched yet."""
        if not self.is_reduced:
            for bucket in self.buckets[self.num_launched :]:
                self.launch(bucket)

    @override
    def wait(self) -> None:
        self.check_views()
        self.check_frozen()
        self.launch_rest()
        self.is_reduced = True
        super().wait()

    @override
    def zero_grad(self) -> None:
        self.finish_thrown_away()
        self.check_views()
        self.num_launched = 0
        self.is_reduced = False
        super().zero_grad()

    def finish_thrown_away(self) -> None:
        """Launch the buckets that other ranks may have launched, and wait for them."""
        if not self.is_reduced:  # a rank that uses nothing launches nothing by itself
            self.wait()

    @override
    def unbind(self) -> None:
        if self.num_launched:  # a step without `wait()`
            self.finish_thrown_away()
        torch.cuda.current_stream().wait_stream(self.comm)
        super().unbind()
