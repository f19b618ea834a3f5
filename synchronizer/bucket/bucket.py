"""One bucket: its flat buffer, the gradient views into it, and its reduction.

Note [Users of the buffer]
~~~~~~~~~~~~~~~~~~~~~~~~~~
    state                  code that may use the buffer
    accumulating, ready    backward, which adds into the views on any stream
    launched               the reduction alone; any other write races with it
    reduced                the caller, on streams that are ordered after `wait()`; of a
                           scattered bucket only the part that this rank owns
    offloaded              none: there is no memory

A bucket keeps one buffer from bind to release. It frees the buffer when no reduction is
in flight, so none reads reused memory. Replacement: Note [Effects of a rebuild].
"""

from collections.abc import Iterator
from contextlib import contextmanager
from functools import cached_property
from typing import NoReturn

import torch

from syncverify.synchronizer.contract.config import SynchronizerConfig
from syncverify.synchronizer.plan.grouping import BucketPlan
from syncverify.synchronizer.plan.norm_plan import NormRun, norm_runs
from syncverify.synchronizer.plan.ownership import (
    OwnedGradient,
    owned_gradients,
    owned_range,
)
from syncverify.synchronizer.ranks.process_groups import ReductionGroups
from syncverify.synchronizer.transport.bucket_reduction import BucketReduction
from syncverify.synchronizer.transport.streams import SideStream, Stream

from .finite_check import FiniteCheck
from .gradient_view import GradientView
from .offloaded_buffer import OffloadedBuffer
from .state import CLOSED, BucketState, excess_error
from .timing import Stopwatch, profiled
from .used_flags import write_flags


class Bucket:
    """A flat buffer whose gradients are counted and reduced together.

    The buffer is allocated zeroed, on the device of `side`, the stream for reductions.
    `is_last` marks the bucket that is launched last in a step.
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
        # Whether `flush()` ended the step, with any number of gradients.
        self._is_flushed = False
        self._require_accumulations = require_accumulations
        self._side = side
        self._owned = owned_range(plan, groups)
        self._reduction = BucketReduction(
            plan, groups, config, owned=self._owned, is_last=is_last
        )
        # Freed memory goes back to the pool of this stream, see `release`.
        self._allocation_stream = side.current()
        # Every stream that wrote into the buffer in this step, in the order of first
        # use. A dict, because the order of a set may differ between runs.
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
        # Invariant: the number of views that are not complete.
        self._num_incomplete = len(self.views)
        # Views that got a gradient in the running backward.
        self._arrived_views: list[GradientView] = []
        # The count of writes after the last gradient.
        self._seen_version = self.version

    @property
    def communicates(self) -> bool:
        """Whether the bucket has a reduction or a check to launch."""
        return self._reduction.communicates

    @property
    def version(self) -> int:
        """Number of in-place writes to the buffer and its views, as torch counts."""
        return self._buffer._version  # noqa: SLF001

    @property
    def has_started(self) -> bool:
        """Whether this step has accumulated a gradient."""
        return any(view.num_accumulations for view in self.views)

    def unfinished(self) -> list[GradientView]:
        """List the views with fewer accumulations than required, unless flushed."""
        if self._is_flushed:
            return []
        required = self._require_accumulations
        return [view for view in self.views if view.num_accumulations < required]

    def unused(self) -> list[GradientView]:
        """List the views to which no backward of this step came."""
        return [v for v in self.views if not (v.is_used or v.num_accumulations)]

    def require(self, require_accumulations: int) -> None:
        """Change the required accumulations of every parameter; no step has started."""
        self._require_accumulations = require_accumulations

    def accumulate(self, view: GradientView, *, counts: bool) -> None:
        """Count one more gradient, in constant time.

        `.grad` of the view holds the gradient that autograd has just accumulated.
        `counts` tells whether the backward is one of those that the step requires.
        """
        is_first = not view.num_arrivals
        # Inline, because this runs for every gradient.
        if (
            self._is_flushed
            or self.state in CLOSED
            or (is_first and view.num_accumulations == self._require_accumulations)
        ):
            self._refuse(view)
        if view.arrival_placements:
            view.refuse_reduced_gradient()
        # An undefined gradient counts as zeros, and uses nothing.
        if view.is_attached():
            has_gradient = self._flags is None or self._was_written(view)
        elif view.has_graph() and self._awaits_more(view, counts=is_first and counts):
            has_gradient = True  # a later backward of the step may differentiate it
        else:
            has_gradient = view.copy_from_grad(self._side)
        # Autograd runs this hook on the stream of the accumulation, which may differ
        # between parameters and between micro-batches.
        self._writers[self._side.current()] = None
        view.is_used |= has_gradient
        if self._flags is not None:
            self._seen_version = self.version
        view.num_arrivals += 1
        if is_first:
            self._arrived_views.append(view)
            view.num_accumulations += counts
        if view.num_arrivals == view.expected_arrivals:
            self._note_complete(view)

    def end_backward(self) -> None:
        """Complete the views of the running backward, which ends."""
        for view in self._arrived_views:
            view.expected_arrivals = max(view.expected_arrivals, view.num_arrivals)
            view.num_arrivals = 0
            self._note_complete(view)
        self._arrived_views.clear()

    def flush(self) -> None:
        """End the step with the gradients so far; no backward is running."""
        self._is_flushed = True
        for view in self.views:
            if view.has_graph():
                view.copy_from_grad(self._side)
            elif view.is_stale:
                view.zero_stale()
            else:
                continue
            self._writers[self._side.current()] = None
        if self.state is BucketState.ACCUMULATING:
            self._become_ready()

    def launch(self) -> None:
        """Start the check and the reduction of the buffer over its ranks."""
        assert self.communicates, "local buckets are not launched"
        if self._flags is not None:
            write_flags(self._flags, [view.is_used for view in self.views])
            self._writers[self._side.current()] = None
        # What overlaps: the rest of backward, on any stream, with this reduction. What
        # orders it: every stream in `_writers` has queued its last write to the buffer,
        # and the side stream waits for each of them. The stream of the last hook alone
        # would not be enough.
        self._side.wait_for(self._writers)
        with self._side.activate(), profiled(f"launch {self.label}"):
            if self.finite:
                self.finite.check_local(self._buffer)
            self._reduction.start(self._buffer)
        self.state = BucketState.LAUNCHED
        if self.stopwatch:
            self.stopwatch.note_launched()

    def finish(self, scale: float | torch.Tensor | None = None) -> None:
        """End the step; afterwards the side stream is ordered after the reduction.

        `scale` is a factor of every gradient: a number, or a tensor without dims that
        the current stream may still be computing.
        """
        if isinstance(scale, torch.Tensor):
            self._side.wait_for((self._side.current(),))
        # A process group runs its collectives on internal streams. A wait while the side
        # stream is current orders only the side stream after them. So the stream of the
        # caller stays free until it waits for the side stream.
        with self._side.activate(), profiled(f"finish {self.label}"):
            factor = 1.0 if scale is None else scale
            is_reduced = self._reduction.finish(self._buffer, factor)
            if is_reduced and self.finite:
                self.finite.check_sums(self._buffer)
        if not is_reduced:
            self._end_locally(scale)
        if self.stopwatch and self.state in (BucketState.READY, BucketState.LAUNCHED):
            self.stopwatch.note_done()
        self.state = BucketState.REDUCED

    def refuse_disagreement(self) -> None:
        """Refuse gradients that differ between checked ranks, after `finish`."""
        with self._side.activate():  # ordered after the exchange
            self._reduction.refuse_disagreement(self.label)

    def abandon(self) -> None:
        """Wait for all launched work, as `finish` does, and launch nothing more."""
        self._reduction.give_up()
        self.finish()

    def leave(self) -> None:
        """Launch nothing more, and give every `.grad` back; what is in flight stays so."""
        self._reduction.give_up()
        for view in self.views:
            view.detach()

    def drop_unused(self) -> None:
        """Set `.grad` to None where no rank used the parameter, after the reduction."""
        used = [float(view.is_used) for view in self.views]
        if self._flags is not None:
            with self._side.activate():  # ordered after the reduction
                used = self._flags.tolist()
        for view, num_ranks in zip(self.views, used, strict=True):
            if not num_ranks:
                view.drop()

    def offload(self) -> None:
        """Free the device memory, and set `.grad` to None; nothing is in flight."""
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
            # This bucket has memory: an earlier call ran out of memory half-way.
            return
        current = self._side.current()
        self._offloaded.restore(self._buffer)
        for view in self.views:
            view.note_address()
        # As after an allocation: later users of the buffer are ordered after the copy.
        self._allocation_stream = current
        self._writers = {current: None}
        self._side.wait_for((current,))
        self.state, self._offloaded = self._state_before_offload, None

    def drop_scattered(self) -> None:
        """Set `.grad` to None in a scattered bucket, which is reduced."""
        if self.plan.num_shards > 1:
            for view in self.views:
                view.drop()

    def owned_gradients(self) -> Iterator[OwnedGradient]:
        """Yield the owned part of each gradient; the bucket is reduced."""
        return owned_gradients(self.plan, self._buffer, self._owned)

    @cached_property
    def norm_runs(self) -> tuple[NormRun, ...]:
        """The owned elements, by the ranks over which gradients are spread."""
        return norm_runs(self.plan, self._owned)

    @contextmanager
    def borrow(self) -> Iterator[torch.Tensor]:
        """Lend the buffer, of shape (N,), to the current stream; it is reduced."""
        current = self._side.current()
        self._side.release_to(current)
        yield self._buffer
        # Later users wait for the side stream, possibly on a third stream. So the side
        # stream waits for this use, and later users are ordered after it as well.
        self._side.wait_for((current,))

    def scale(self, factor: float | torch.Tensor) -> None:
        """Multiply every gradient that this rank owns; the bucket is reduced.

        A factor that is a tensor has no dims.
        """
        with self.borrow() as buffer:
            owned = buffer[self._owned.start : self._owned.stop]
            if isinstance(factor, torch.Tensor):
                # torch rounds a factor without dims to the dtype of the buffer. With a
                # dim it takes part in type promotion, and only the product is rounded.
                factor = factor.to(owned.device, non_blocking=True).reshape(1)
                torch.mul(owned, factor, out=owned)
            else:
                owned.mul_(factor)

    def restart(self, *, set_to_none: bool) -> None:
        """Start the next step with zeros, or None, in `.grad`; nothing is in flight."""
        current = self._side.current()
        # What overlaps: nothing. Zeros or gradients overwrite the results of the
        # reduction. `wait()` has ordered the reduction before its own current stream,
        # which may be another stream than this one. So this stream waits as well, and
        # for the writers of a step that nobody waited for.
        if self.state is not BucketState.REDUCED:
            self._side.wait_for(self._writers)
        self._side.release_to(current)
        if not set_to_none:
            self._buffer.zero_()
        self._writers = {current: None}
        for view in self.views:
            view.restart(set_to_none=set_to_none)
        self._num_incomplete = len(self.views)
        self._arrived_views.clear()
        self._seen_version = self.version
        self._is_flushed = False
        self.state = BucketState.ACCUMULATING

    def release(self) -> None:
        """Free the buffer; no reduction is in flight."""
        # When may the memory be reused: the allocator gives it back to the stream of the
        # allocation at once, without a wait. So that stream first waits for all users of
        # the memory: the reductions, the accumulations, and the stream of the caller.
        self._side.release_to(self._allocation_stream)
        for stream in (*self._writers, self._side.current()):
            self._allocation_stream.wait_stream(stream)
        for view in self.views:
            view.detach()
        self.views = []
        self._arrived_views.clear()
        self._flags = None
        del self._buffer

    def _was_written(self, view: GradientView) -> bool:
        """Return whether autograd has written a gradient, as far as torch counts that."""
        # A DTensor counts by itself; a function on its local tensor defines a gradient.
        return view.is_dtensor or self.version != self._seen_version

    def _awaits_more(self, view: GradientView, *, counts: bool) -> bool:
        """Tell whether the step has a further backward, after this one is counted."""
        return view.num_accumulations + counts < self._require_accumulations

    def _is_full(self, view: GradientView) -> bool:
        return view.num_accumulations == self._require_accumulations

    def _end_locally(self, scale: float | torch.Tensor | None) -> None:
        if self.state is BucketState.READY:
            # As after a reduction: whoever waits for the side stream, for the gradients or
            # for their memory, comes after backward.
            self._side.wait_for(self._writers)
        if self.finite and self.state is BucketState.READY:
            with self._side.activate():
                self.finite.check_local(self._buffer)
        if scale is not None:
            self.scale(scale)

    def _note_complete(self, view: GradientView) -> None:
        """Count a complete view; the last one makes the bucket ready."""
        if view.is_complete or not self._is_full(view):
            return
        view.is_complete = True
        self._num_incomplete -= 1
        if not self._num_incomplete:
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
