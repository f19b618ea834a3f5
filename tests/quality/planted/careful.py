"""A correct synchronizer that gets every lifecycle right, or says what it cannot do.

Buckets are launched in one order on all ranks, whatever is ready first, and `wait()`
launches what was not; so it needs no accumulation to come. What it refuses is a `.grad`
that is not its view and an accumulation too many.
"""

import torch
from planted.placements import local
from planted.side_streams import SideStreams
from planted.view_buckets import Bucket
from torch import nn

from syncverify.features import ALL_BEYOND, BEYOND

LIFECYCLE = ("event", "launch", "readiness", "used")


def only(*features: str) -> frozenset[str]:
    """Return what is outside of a contract that covers these features alone."""
    topics = {feature.partition("=")[0] for feature in features}
    others = {f"{topic}={value}" for topic in topics for value in BEYOND[topic]}
    return (ALL_BEYOND - topics) | (others - set(features))


class Careful(SideStreams):
    outside = ALL_BEYOND - set(LIFECYCLE)
    overlaps_backward = False  # a step may begin with what the other ranks never use

    def bind(self) -> None:
        self.num_launched = 0
        self.is_reduced = False
        super().bind()

    def on_accumulated(self, bucket: Bucket, parameter: nn.Parameter) -> None:
        self.fork()
        self.check_view(bucket, parameter)
        bucket.counts[parameter] += 1
        self.check_count(bucket, parameter)
        self.launch_ready()

    def check_view(self, bucket: Bucket, parameter: nn.Parameter) -> None:
        own = None
        if parameter.grad is not None:
            own = local(parameter.grad).untyped_storage().data_ptr()
        if own != bucket.buffer.untyped_storage().data_ptr():
            raise RuntimeError("expected .grad to be the view that bind() made of it")

    def check_count(self, bucket: Bucket, parameter: nn.Parameter) -> None:
        if bucket.counts[parameter] > self.required:
            raise RuntimeError(
                f"expected {self.required} backwards in a step, got more"
            )

    def launch_ready(self) -> None:
        while self.num_launched < len(self.buckets):
            bucket = self.buckets[self.num_launched]
            if not self.is_ready(bucket):
                return
            self.launch(bucket)

    def launch(self, bucket: Bucket) -> None:
        self.num_launched += 1
        super().launch(bucket)

    def launch_rest(self) -> None:
        if not self.is_reduced:
            for bucket in self.buckets[self.num_launched :]:
                self.launch(bucket)

    def wait(self) -> None:
        for bucket in self.buckets:
            for parameter in bucket.parameters:
                self.check_view(bucket, parameter)
        self.launch_rest()
        self.is_reduced = True
        super().wait()

    def zero_grad(self) -> None:
        self.finish_thrown_away()
        self.num_launched = 0
        self.is_reduced = False
        super().zero_grad()

    def finish_thrown_away(self) -> None:
        """Launch what other ranks have launched, and wait for it."""
        if self.num_launched and not self.is_reduced:
            self.wait()

    def unbind(self) -> None:
        torch.cuda.current_stream().wait_stream(self.comm)
        super().unbind()
