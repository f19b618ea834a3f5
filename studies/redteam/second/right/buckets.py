"""Right programs with unusual buckets."""

from collections.abc import Iterator
from typing import Any

import torch
import torch.distributed as dist
from torch import nn
from typing_extensions import override

from studies.redteam.bases import Main, Streams, Views
from studies.redteam.program import right
from syncverify.scenario.contract import Capabilities
from syncverify.subjects.bugbank.bases.placements import (
    Groups,
    grad_dtype,
    like,
    local,
    reduce_groups,
)
from syncverify.subjects.bugbank.bases.view_buckets import ViewBuckets


@right(
    since="all slices of a buffer are launched, and each is waited for, in reverse order"
)
class SlicesAwaitedBackwards(Main):
    """One flat buffer for each dtype and set of groups; its slices of 1,000 elements are awaited in reverse."""

    @override
    def plan(self) -> Iterator[list[nn.Parameter]]:
        kinds: dict[Any, Any] = {}
        for p in self.parameters:
            kinds.setdefault((grad_dtype(p), reduce_groups(p)), []).append(p)
        yield from kinds.values()

    @override
    def sum_bucket(self, buffer: torch.Tensor, groups: Groups) -> None:
        for group in groups:
            works = [
                dist.all_reduce(piece, group=group, async_op=True)
                for piece in buffer.split(1000)
                if piece.numel()
            ]
            for work in reversed(works):
                work.wait()


@right(since="whatever polls say, each work is waited for in the end")
class PollsThenWaits(Views):
    """`wait()` polls works round-robin a few times, finishes those that are done, and then waits for the rest."""

    @override
    def wait(self) -> None:
        done = set()
        for _ in range(5):
            for bucket in self.buckets:
                if (
                    bucket.work is not None
                    and bucket not in done
                    and bucket.work.is_completed()
                ):
                    bucket.work.wait()  # completed: orders the stream, and raises errors
                    done.add(bucket)
        # Second axes follow in one order on all ranks, not in the order of completion.
        for bucket in self.buckets:
            self.finish(bucket)


@right(since="each stream forks from the caller's at each launch, and both are joined")
class TwoSideStreams(Streams):
    """Buckets take turns on two side streams."""

    @override
    def bind(self) -> None:
        super().bind()
        self.sides = [torch.cuda.Stream(), torch.cuda.Stream()]
        for index, bucket in enumerate(self.buckets):
            bucket.side = self.sides[index % 2]

    @override
    def launch(self, bucket: Any) -> None:
        bucket.side.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(bucket.side):
            ViewBuckets.launch(self, bucket)

    @override
    def wait(self) -> None:
        for bucket in self.buckets:
            with torch.cuda.stream(bucket.side):
                self.finish(bucket)
        for side in self.sides:
            torch.cuda.current_stream().wait_stream(side)


@right(since="parts of the arena are aligned, and no two share a byte")
class OneArena(Views):
    """One arena of bytes holds the buckets of all dtypes; gradients are typed views into it."""

    ALIGNMENT = 64

    @override
    def bind(self) -> None:
        super().bind()
        starts, end = [], 0
        for bucket in self.buckets:
            starts.append(end)
            end += -(-bucket.buffer.nbytes // self.ALIGNMENT) * self.ALIGNMENT
        if not self.buckets:
            return
        device = self.buckets[0].buffer.device
        arena = torch.zeros(end, dtype=torch.uint8, device=device)
        for start, bucket in zip(starts, self.buckets, strict=True):
            raw = arena[start : start + bucket.buffer.nbytes]
            bucket.buffer = raw.view(bucket.buffer.dtype)
            place = 0
            for parameter in bucket.parameters:
                part = local(parameter)
                view = bucket.buffer[place : place + part.numel()].view(part.shape)
                parameter.grad = like(parameter, view)
                place += part.numel()


@right(
    since="the callback runs when the backward is over, and launches in the plan's order"
)
class EndOfBackwardCallback(Views):
    """A callback of the autograd engine launches complete buckets at the end of a backward."""

    @override
    def bind(self) -> None:
        super().bind()
        self.is_queued = False

    @override
    def on_accumulated(self, bucket: Any, parameter: nn.Parameter) -> None:
        bucket.counts[parameter] += 1
        if not self.is_queued:
            self.is_queued = True
            torch.autograd.Variable._execution_engine.queue_callback(  # noqa: SLF001
                self.launch_ready
            )

    def launch_ready(self) -> None:
        """Launch the complete buckets."""
        self.is_queued = False
        for bucket in self.buckets:
            if self.is_ready(bucket) and bucket.work is None:
                self.launch(bucket)


@right(
    since="the next step gets the other buffer, which is zeroed before it is handed out"
)
class DoubleBuffers(Views):
    """Two buffers for each bucket take turns: gradients of the last step stay as they are for one more step."""

    @override
    def bind(self) -> None:
        super().bind()
        for bucket in self.buckets:
            bucket.spare = torch.zeros_like(bucket.buffer)

    @override
    def zero_grad(self) -> None:
        for bucket in self.buckets:
            bucket.counts = dict.fromkeys(bucket.parameters, 0)
            bucket.buffer, bucket.spare = bucket.spare, bucket.buffer
            bucket.buffer.zero_()
            start = 0
            for parameter in bucket.parameters:
                part = local(parameter)
                end = start + part.numel()
                parameter.grad = like(
                    parameter, bucket.buffer[start:end].view(part.shape)
                )
                start = end


@right(
    since="the number of micro-batches is announced after bind(), and buckets are launched in one order"
)
class CountAnnouncedLater(Views):
    """The constructor takes no number of micro-batches; hooks launch in the plan's order, up to the first incomplete bucket."""

    capabilities = Capabilities(
        varying_accumulations=True, right=frozenset({"readiness"})
    )

    def __init__(
        self, param_groups: list[list[nn.Parameter]], bucket_size_mb: float
    ) -> None:
        super().__init__(param_groups, bucket_size_mb, 0)
        self.num_launched = 0

    @override
    def on_accumulated(self, bucket: Any, parameter: nn.Parameter) -> None:
        bucket.counts[parameter] += 1
        while self.num_launched < len(self.buckets):
            candidate = self.buckets[self.num_launched]
            if not self.is_ready(candidate):
                return
            self.launch(candidate)
            self.num_launched += 1

    @override
    def zero_grad(self) -> None:
        super().zero_grad()
        self.num_launched = 0

    @override
    def unbind(self) -> None:
        super().unbind()
        self.num_launched = 0


@right(
    since="an error of a work is chained to one that names the bucket, and none is lost"
)
class RaisesWhatFailed(Views):
    """All buckets are awaited even if one fails, and the first error is raised in the end."""

    capabilities = Capabilities(refused=frozenset({"event=failing_collectives"}))

    @override
    def wait(self) -> None:
        failed: list[tuple[int, RuntimeError]] = []
        for index, bucket in enumerate(self.buckets):
            try:
                self.finish(bucket)
            except RuntimeError as error:
                bucket.work = None
                failed.append((index, error))
        for index, first in failed:
            raise RuntimeError(
                f"the reduction of bucket {index} failed: {first}"
            ) from first
