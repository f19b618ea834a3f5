"""One bucket: its flat buffer, the gradient views into it, and its reduction.

Note [Who may touch the buffer]
~~~~~~~~~~~~~~~~~~~~~~~~~~~~~~~
    accumulating, ready    backward adds into the views, on any stream it likes
    launched               the all-reduce alone; whoever else writes races with it
    reduced                the caller, on streams that are ordered after `wait()`; of a
                           scattered bucket only the part that this rank owns
    offloaded              nobody: there is no memory

A bucket has one buffer as long as it lives, and gives it back only when no reduction is
in flight, so none can find its memory given to somebody else. Buckets are exchanged at
one place only, see Note [What a rebuild keeps].

Note [When a gradient is complete]
~~~~~~~~~~~~~~~~~~~~~~~~~~~~~~~~~~
A parameter that is used in several reentrant checkpoints gets several gradients in one
backward, and the first of them looks like any other. Reducing after it would lose the
rest. So in the last backward of a step a parameter is complete when it has got as many
gradients as any backward before has brought it, and otherwise when the outermost
backward ends. Hence the very first backward is not overlapped if it is the last of its
step. A graph that brings more than ever before to a bucket in flight is an error.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from functools import cached_property
from typing import NoReturn

import torch

from .bucket_reduction import BucketReduction
from .bucket_state import CLOSED, BucketState, excess_error
from .config import SynchronizerConfig
from .finite import FiniteCheck
from .gradient_view import GradientView
from .grouping import BucketPlan
from .norm_plan import NormRun, norm_runs
from .offload import OffloadedBuffer
from .ownership import OwnedGradient, owned_gradients, owned_range
from .process_groups import ReductionGroups
from .profiling import profiled
from .streams import SideStream, Stream
from .timing import Stopwatch


class Bucket:
    """A flat buffer whose gradients are counted and reduced together.

    Args:
        plan: Who lives where; the buffer is allocated zeroed.
        side: The stream of the plan's device on which to reduce.
        groups: Where to find the process groups to reduce over.
        require_accumulations: Of every parameter, in each step.
        config: How to reduce.
        is_last: Whether it is the last bucket to be launched in a step.

    Raises:
        GradientMismatchError: A `.grad` that exists does not fit its view.
    """

    def __init__(
        self,
        plan: BucketPlan,
        *,
        side: SideStream,
        groups: ReductionGroups,
        require_accumulations: int,
        config: SynchronizerConfig,
        is_last: bool,
    ) -> None:
        self.plan = plan
        self.label = f"bucket {plan.index}"
        self.state = BucketState.ACCUMULATING
        # Whether `flush()` ended the step, however few gradients came.
        self._is_flushed = False
        self._require_accumulations = require_accumulations
        self._side = side
        self._owned = owned_range(plan, groups)
        self._reduction = BucketReduction(
            plan, groups, config, owned=self._owned, is_last=is_last
        )
        # Memory that is freed goes back to this stream's pool, see `release`.
        self._allocation_stream = side.current()
        # Every distinct stream that wrote into the buffer in this step, in first-use
        # order; a dict, because the order of a set may differ between runs.
        self._writers: dict[Stream, None] = {self._allocation_stream: None}
        self._buffer = torch.zeros(
            plan.buffer_numel, dtype=plan.key.grad_dtype, device=plan.key.device
        )
        self.views = [
            GradientView.of(member, self._buffer, offset, side)
            for member, offset in zip(plan.members, plan.offsets_numel, strict=True)
        ]
        self._offloaded: OffloadedBuffer | None = None
        self._state_before_offload = self.state
        self.stopwatch = (
            Stopwatch(plan.index, self._buffer.nbytes) if config.timings else None
        )
        self.finite = FiniteCheck(plan, self._owned) if config.check_finite else None
        self._flags: torch.Tensor | None = None
        if (start := plan.flags_offset_numel) is not None:
            self._flags = self._buffer[start : start + len(self.views)]
        # Invariant: the number of views that are not settled.
        self._num_unsettled = len(self.views)
        # Whom the running backward has brought a gradient.
        self._arrived: list[GradientView] = []

    @property
    def communicates(self) -> bool:
        """Whether there is anything to launch."""
        return self._reduction.communicates

    @property
    def version(self) -> int:
        """How many in-place writes to the buffer and its views torch has counted."""
        return self._buffer._version  # noqa: SLF001

    @property
    def has_started(self) -> bool:
        """Whether any gradient was accumulated in this step."""
        return any(view.num_accumulations for view in self.views)

    def unfinished(self) -> list[GradientView]:
        """List the views with fewer accumulations than required, unless flushed."""
        if self._is_flushed:
            return []
        required = self._require_accumulations
        return [view for view in self.views if view.num_accumulations < required]

    def unused(self) -> list[GradientView]:
        """List the views that hold no gradient at all."""
        return [view for view in self.views if not view.is_used]

    def require(self, require_accumulations: int) -> None:
        """Change what a step requires; none has started.

        Args:
            require_accumulations: Of every parameter.
        """
        self._require_accumulations = require_accumulations

    def accumulate(self, view: GradientView, *, counts: bool) -> None:
        """Take note of one more gradient, in constant time.

        Args:
            view: Of this bucket; its `.grad` holds what autograd just accumulated.
            counts: Whether it is one of those that the step requires.

        Raises:
            TooManyAccumulationsError: The parameter has all its gradients.
            LateAccumulationError: The bucket is being or has been reduced.
            GradientPlacementError: The gradient would be summed twice.
            GradientMismatchError: `.grad` was exchanged for one that does not fit.
            OffloadedError: There is no memory.
        """
        is_first = not view.num_arrivals
        # Written out rather than called: every gradient comes this way.
        if (
            self._is_flushed
            or self.state in CLOSED
            or (is_first and view.num_accumulations == self._require_accumulations)
        ):
            self._refuse(view)
        if view.arrived_as:
            view.refuse_reduced_gradient()
        if not view.is_attached():
            view.take_over(self._side)
        # Autograd runs this hook on the stream on which it accumulated, which may be
        # another one for each parameter and each micro-batch.
        self._writers[self._side.current()] = None
        view.is_used = True
        view.num_arrivals += 1
        if is_first:
            self._arrived.append(view)
            view.num_accumulations += counts
        if view.num_arrivals == view.expected_arrivals:
            self._settle(view)

    def end_backward(self) -> None:
        """Take note that the running backward brings no further gradient."""
        for view in self._arrived:
            view.expected_arrivals = max(view.expected_arrivals, view.num_arrivals)
            view.num_arrivals = 0
            self._settle(view)
        self._arrived.clear()

    def flush(self) -> None:
        """End the step with the gradients that came; no backward is running."""
        self._is_flushed = True
        for view in self.views:
            if view.is_stale:
                view.freshen()
                self._writers[self._side.current()] = None
        if self.state is BucketState.ACCUMULATING:
            self._become_ready()

    def launch(self) -> None:
        """Start to compare and to reduce the buffer over its ranks."""
        assert self.communicates, "local buckets are not launched"
        if self._flags is not None:
            # Counts the ranks, in a dtype that may round: only 0 is exact, and enough.
            used = [float(view.is_used) for view in self.views]
            self._flags.copy_(torch.tensor(used))
            self._writers[self._side.current()] = None
        # What overlaps: the rest of backward, on any stream, with this reduction. What
        # orders it: each writer has queued its last write to the buffer, and the side
        # stream waits for all of them, not only for the one whose hook came last.
        self._side.wait_for(self._writers)
        with self._side.activate(), profiled(f"launch {self.label}"):
            if self.finite:
                self.finite.look_at_own(self._buffer)
            self._reduction.start(self._buffer)
        self.state = BucketState.LAUNCHED
        if self.stopwatch:
            self.stopwatch.note_launched()

    def finish(self, scale: float | torch.Tensor | None = None) -> None:
        """End the step, with the side stream ordered after the reduction if any.

        Args:
            scale: Multiplies every gradient: a number, or a tensor without dims that the
                current stream may still be computing.
        """
        if isinstance(scale, torch.Tensor):
            self._side.wait_for((self._side.current(),))
        # A group's collectives run on streams of its own. Waiting while the side stream
        # is current ties them to the side stream only, so the caller's stream stays free
        # until it waits for the side stream itself.
        with self._side.activate(), profiled(f"finish {self.label}"):
            factor = 1.0 if scale is None else scale
            is_reduced = self._reduction.finish(self._buffer, factor)
            if is_reduced and self.finite:
                self.finite.look_at_sums(self._buffer)
        if not is_reduced:
            self._end_locally(scale)
        if self.stopwatch and self.state in (BucketState.READY, BucketState.LAUNCHED):
            self.stopwatch.note_done()
        self.state = BucketState.REDUCED

    def refuse_disagreement(self) -> None:
        """Refuse gradients that differ between ranks that are checked; it is finished.

        Raises:
            GradientDisagreementError: Some rank holds another gradient.
        """
        with self._side.activate():  # which is ordered after the exchange
            self._reduction.refuse_disagreement(self.label)

    def abandon(self) -> None:
        """Wait for what was launched, as `finish` does, and launch nothing more."""
        self._reduction.give_up()
        self.finish()

    def drop_unused(self) -> None:
        """Set `.grad` to None where no rank used the parameter; the bucket is reduced."""
        used = [float(view.is_used) for view in self.views]
        if self._flags is not None:
            with self._side.activate():  # which is ordered after the reduction
                used = self._flags.tolist()
        for view, num_ranks in zip(self.views, used, strict=True):
            if not num_ranks:
                view.drop()

    def offload(self) -> None:
        """Give the device memory back, and set `.grad` to None; nothing is in flight."""
        current = self._side.current()
        self._side.release_to(current)
        for writer in self._writers:
            current.wait_stream(writer)
        self._offloaded = OffloadedBuffer.of(self._buffer, self.views)
        self._state_before_offload = self.state
        self.state = BucketState.OFFLOADED

    def onload(self) -> None:
        """Undo `offload()` if there was one, with memory of the current stream."""
        if self._offloaded is None:
            # An earlier attempt ended half-way, for want of memory.
            return
        current = self._side.current()
        self._offloaded.restore(self._buffer)
        for view in self.views:
            view.note_address()
        # As after an allocation: whoever comes next is ordered after the copy.
        self._allocation_stream = current
        self._writers = {current: None}
        self._side.wait_for((current,))
        self.state, self._offloaded = self._state_before_offload, None

    def drop_scattered(self) -> None:
        """Set `.grad` to None where this rank may own only a part; the bucket is reduced."""
        if self.plan.num_shards > 1:
            for view in self.views:
                view.drop()

    def owned_gradients(self) -> Iterator[OwnedGradient]:
        """Yield what this rank owns of each gradient; the bucket is reduced."""
        return owned_gradients(self.plan, self._buffer, self._owned)

    @cached_property
    def norm_runs(self) -> tuple[NormRun, ...]:
        """What this rank owns, by the ranks over which it is spread."""
        return norm_runs(self.plan, self._owned)

    @contextmanager
    def borrow(self) -> Iterator[torch.Tensor]:
        """Lend the buffer, of shape (N,), to the current stream; it is reduced."""
        current = self._side.current()
        self._side.release_to(current)
        yield self._buffer
        # Whatever is ordered after the side stream later on, be it on a stream that has
        # never seen this use, is then ordered after the use too.
        self._side.wait_for((current,))

    def scale(self, factor: float | torch.Tensor) -> None:
        """Multiply every gradient that this rank owns; the bucket is reduced.

        Args:
            factor: A number, or a tensor without dims on the buffer's device type.
        """
        with self.borrow() as buffer:
            owned = buffer[self._owned.start : self._owned.stop]
            if isinstance(factor, torch.Tensor):
                # A tensor without dims would be rounded to the buffer's dtype first. With
                # a dim it takes part in type promotion; only the product is rounded.
                factor = factor.to(owned.device, non_blocking=True).reshape(1)
                torch.mul(owned, factor, out=owned)
            else:
                owned.mul_(factor)

    def restart(self, *, set_to_none: bool) -> None:
        """Start the next step; no reduction is in flight.

        Args:
            set_to_none: Whether every `.grad` becomes None rather than zero.
        """
        current = self._side.current()
        # What overlaps: nothing. Zeros or gradients overwrite what the reduction wrote.
        # `wait()` ordered that before the stream *it* was called on, which need not be
        # this one, so the order is stated again.
        self._side.release_to(current)
        if not set_to_none:
            self._buffer.zero_()
        self._writers = {current: None}
        for view in self.views:
            view.restart(set_to_none=set_to_none)
        self._num_unsettled = len(self.views)
        self._arrived.clear()
        self._is_flushed = False
        self.state = BucketState.ACCUMULATING

    def release(self) -> None:
        """Give the buffer back; no reduction is in flight."""
        # When may the memory be reused: the allocator gives it to the stream it was
        # allocated on, at once and without asking. So that stream first waits for all
        # who used it: the reductions, the accumulations, and the caller's own stream.
        self._side.release_to(self._allocation_stream)
        for stream in (*self._writers, self._side.current()):
            self._allocation_stream.wait_stream(stream)
        for view in self.views:
            view.detach()
        self.views = []
        self._arrived.clear()
        self._flags = None
        del self._buffer

    def _is_full(self, view: GradientView) -> bool:
        return view.num_accumulations == self._require_accumulations

    def _end_locally(self, scale: float | torch.Tensor | None) -> None:
        if self.finite and self.state is BucketState.READY:
            self._side.wait_for(self._writers)
            with self._side.activate():
                self.finite.look_at_own(self._buffer)
        if scale is not None:
            self.scale(scale)

    def _settle(self, view: GradientView) -> None:
        """Become ready with the last view that is complete."""
        if view.is_settled or not self._is_full(view):
            return
        view.is_settled = True
        self._num_unsettled -= 1
        if not self._num_unsettled:
            self._become_ready()

    def _become_ready(self) -> None:
        self.state = BucketState.READY
        if self.stopwatch:
            self.stopwatch.note_ready()

    def _refuse(self, view: GradientView) -> NoReturn:
        error = excess_error(
            view,
            state=self.state,
            is_flushed=self._is_flushed,
            required=self._require_accumulations,
            label=self.label,
        )
        raise error
