"""Parameters, gradients, streams and counts that change in unusual ways."""

import itertools

import torch
from torch import nn
from typing_extensions import override

from studies.redteam.program import wrong
from syncverify.subjects.bugbank.bases.plain_grads import CountsHookCalls, PlainGrads
from syncverify.subjects.bugbank.bases.side_streams import SideStreams
from syncverify.subjects.bugbank.bases.view_buckets import Bucket, ViewBuckets


@wrong(trigger="frozen, and trained again later", needs=("event=unfreeze_in_turn",))
class ForgetsTheThawed(PlainGrads):
    """A parameter that was frozen once is never reduced again."""

    @override
    def bind(self) -> None:
        listed = itertools.chain(*self.param_groups)
        self.parameters = [*dict.fromkeys(listed)]
        self.frozen: set[nn.Parameter] = set()

    @override
    def wait(self) -> None:
        self.frozen |= {p for p in self.parameters if not p.requires_grad}
        for parameter in self.parameters:
            if parameter.grad is not None and parameter not in self.frozen:
                self.reduce(parameter.grad)


@wrong(
    trigger="every other gradient is dropped", needs=("event=set_every_other_to_none",)
)
class LooksAtTheFirst(ViewBuckets):
    """Views are made again only if the first gradient of a bucket was dropped."""

    @override
    def zero_grad(self) -> None:
        super().zero_grad()
        self.is_fresh = False

    @override
    def on_accumulated(self, bucket: Bucket, parameter: nn.Parameter) -> None:
        first = bucket.parameters[0].grad
        if first is not None and local_pointer(first) != bucket.buffer.data_ptr():
            self.adopt(bucket)
        super().on_accumulated(bucket, parameter)

    def adopt(self, bucket: Bucket) -> None:
        """Copy gradients into a bucket, and make views of them."""
        grads = [p.grad for p in bucket.parameters]
        if all(grad is not None for grad in grads):
            parts = [local_flat(grad) for grad in grads if grad is not None]
            bucket.buffer.copy_(torch.cat(parts))
            bucket.attach(bucket.buffer)


@wrong(trigger="each step runs on another stream", needs=("launch=step_on_new_stream",))
class RemembersTheStream(SideStreams):
    """The caller's stream of the first step is joined in each one."""

    @override
    def bind(self) -> None:
        super().bind()
        self.caller: torch.cuda.Stream | None = None

    @override
    def join(self) -> None:
        if self.caller is None:
            self.caller = torch.cuda.current_stream()
        self.caller.wait_stream(self.comm)


@wrong(
    trigger="a count that changed, then `unbind()` and `bind()`",
    needs=("event=rebind_announced",),
)
class LosesTheCount(CountsHookCalls):
    """`bind()` goes back to the count of the constructor."""

    def __init__(
        self, groups: list[list[nn.Parameter]], size_mb: float, count: int
    ) -> None:
        super().__init__(groups, size_mb, count)
        self.first_count = count

    @override
    def bind(self) -> None:
        self.required = self.first_count
        super().bind()


@wrong(
    trigger="`unbind()` follows a backward, without `wait()`",
    needs=("event=unbind_early",),
)
class UnbindsInFlight(ViewBuckets):
    """`unbind()` frees the memory of buckets, which may still be reduced."""

    @override
    def unbind(self) -> None:
        buffers = [bucket.buffer for bucket in self.buckets]
        super().unbind()
        for buffer in buffers:
            buffer.untyped_storage().resize_(0)


def local_flat(gradient: torch.Tensor) -> torch.Tensor:
    """Return this rank's part of a gradient as a row."""
    part = getattr(gradient, "to_local", lambda: gradient)()
    assert isinstance(part, torch.Tensor)
    return part.detach().reshape(-1)


def local_pointer(gradient: torch.Tensor) -> int:
    """Return the address of this rank's part of a gradient."""
    return local_flat(gradient).data_ptr()
