"""One bucket: its flat buffer, the gradient views into it, and its reduction.

Note [Who may touch the buffer]
~~~~~~~~~~~~~~~~~~~~~~~~~~~~~~~
    accumulating, ready    backward adds into the views, on any stream it likes
    launched               the all-reduce alone; whoever else writes races with it
    reduced                the caller, on streams that are ordered after `wait()`

The buffer is allocated by `bind()`, lives until `unbind()`, and is never exchanged, so
no reduction can find its memory given to somebody else.

Note [When a gradient is complete]
~~~~~~~~~~~~~~~~~~~~~~~~~~~~~~~~~~
A parameter that is used in several reentrant checkpoints gets several gradients in one
backward, and the first of them looks like any other. Reducing after it would lose the
rest. So in the last backward of a step a parameter is complete when it has got as many
gradients as any backward before has brought it, and otherwise when the outermost
backward ends. Hence the very first backward is not overlapped if it is the last of its
step. A graph that brings more than ever before to a bucket in flight is an error.
"""

from enum import Enum, auto

import torch

from .errors import (
    LateAccumulationError,
    SynchronizerError,
    TooManyAccumulationsError,
)
from .gradient_view import GradientView
from .grouping import BucketPlan
from .process_groups import ReductionGroups
from .streams import SideStream, Stream
from .transport import Pending, choose_transport


class BucketState(Enum):
    """Where a bucket is in its step."""

    ACCUMULATING = auto()
    READY = auto()
    LAUNCHED = auto()
    REDUCED = auto()


# Looked up once: Enum makes every access to a member a call, and hooks are many.
_CLOSED_STATES = (BucketState.LAUNCHED, BucketState.REDUCED)


class Bucket:
    """A flat buffer whose gradients are counted and reduced together.

    Args:
        plan: Who lives where; the buffer is allocated zeroed.
        side: The stream of the plan's device on which to reduce.
        groups: Where to find the process groups to reduce over.
        require_accumulations: Of every parameter, in each step.

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
    ) -> None:
        self.label = f"bucket {plan.index}"
        self.state = BucketState.ACCUMULATING
        # Whether `flush()` ended the step, however few gradients came.
        self._is_flushed = False
        self._require_accumulations = require_accumulations
        self._side = side
        self._transport = choose_transport(plan, groups)
        self._pending: Pending | None = None
        # Memory that is freed goes back to this stream's pool, see `release`.
        self._allocation_stream = side.current()
        # Every distinct stream that wrote into the buffer in this step, in first-use
        # order; a dict, because the order of a set may differ between runs.
        self._writers: dict[Stream, None] = {self._allocation_stream: None}
        self._buffer = torch.zeros(
            plan.buffer_numel, dtype=plan.key.grad_dtype, device=plan.key.device
        )
        self.views = [
            GradientView.of(member, self._buffer, offset)
            for member, offset in zip(plan.members, plan.offsets_numel, strict=True)
        ]
        self._flags: torch.Tensor | None = None
        if (start := plan.flags_offset_numel) is not None:
            self._flags = self._buffer[start : start + len(self.views)]
        # Invariant: the number of views that are not settled.
        self._num_unsettled = len(self.views)
        # Whom the running backward has brought a gradient.
        self._arrived: list[GradientView] = []

    @property
    def is_reduced_over_ranks(self) -> bool:
        """Whether there is anything to communicate."""
        return self._transport is not None

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
        """
        is_first = not view.num_arrivals
        if self._is_closed or (is_first and self._is_full(view)):
            raise self._excess(view)
        if view.arrived_as:
            view.refuse_reduced_gradient()
        view.take_over()
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
            if view.num_arrivals > view.expected_arrivals:
                view.expected_arrivals = view.num_arrivals
            view.num_arrivals = 0
            self._settle(view)
        self._arrived.clear()

    def flush(self) -> None:
        """End the step with the gradients that came; no backward is running."""
        self._is_flushed = True
        if self.state is BucketState.ACCUMULATING:
            self.state = BucketState.READY

    def launch(self) -> None:
        """Start to reduce the buffer over its ranks."""
        assert self._transport is not None, "local buckets are not launched"
        if self._flags is not None:
            # Counts the ranks, in a dtype that may round: only 0 is exact, and enough.
            used = [float(view.is_used) for view in self.views]
            self._flags.copy_(torch.tensor(used))
            self._writers[self._side.current()] = None
        # What overlaps: the rest of backward, on any stream, with this reduction. What
        # orders it: each writer has queued its last write to the buffer, and the side
        # stream waits for all of them, not only for the one whose hook came last.
        self._side.wait_for(self._writers)
        with self._side.activate():
            self._pending = self._transport.start(self._buffer)
        self.state = BucketState.LAUNCHED

    def finish(self) -> None:
        """End the step, with the side stream ordered after the reduction if any."""
        pending, self._pending = self._pending, None
        if pending is not None:
            # A group's collectives run on streams of its own. Waiting while the side
            # stream is current ties them to the side stream only, so the caller's stream
            # stays free until it waits for the side stream itself.
            with self._side.activate():
                pending.finish()
        self.state = BucketState.REDUCED

    def drop_unused(self) -> None:
        """Set `.grad` to None where no rank used the parameter; the bucket is reduced."""
        used = [float(view.is_used) for view in self.views]
        if self._flags is not None:
            with self._side.activate():  # which is ordered after the reduction
                used = self._flags.tolist()
        for view, num_ranks in zip(self.views, used, strict=True):
            if not num_ranks:
                view.drop()

    def scale(self, factor: float | torch.Tensor) -> None:
        """Multiply every gradient; the bucket is reduced.

        Args:
            factor: A number, or a tensor without dims on the buffer's device type.
        """
        current = self._side.current()
        self._side.release_to(current)
        if isinstance(factor, torch.Tensor):
            # A tensor without dims would be rounded to the buffer's dtype first. With a
            # dim it takes part in type promotion, and only the product is rounded.
            factor = factor.to(self._buffer.device, non_blocking=True).reshape(1)
            torch.mul(self._buffer, factor, out=self._buffer)
        else:
            self._buffer.mul_(factor)
        # Whatever is ordered after the side stream later on, be it on a stream that has
        # never seen this product, is then ordered after the product too.
        self._side.wait_for((current,))

    def restart(self) -> None:
        """Zero every gradient and start the next step; no reduction is in flight."""
        current = self._side.current()
        # What overlaps: nothing. The zeros overwrite what the last reduction wrote.
        # `wait()` ordered that before the stream *it* was called on, which need not be
        # this one, so the order is stated again.
        self._side.release_to(current)
        self._buffer.zero_()
        self._writers = {current: None}
        for view in self.views:
            view.restart()
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
        self._flags = None
        del self._buffer

    @property
    def _is_closed(self) -> bool:
        return self._is_flushed or self.state in _CLOSED_STATES

    def _is_full(self, view: GradientView) -> bool:
        return view.num_accumulations == self._require_accumulations

    def _settle(self, view: GradientView) -> None:
        """Become ready with the last view that is complete."""
        if view.is_settled or not self._is_full(view):
            return
        view.is_settled = True
        self._num_unsettled -= 1
        if not self._num_unsettled:
            self.state = BucketState.READY

    def _excess(self, view: GradientView) -> Exception:
        name, required = view.plan.name, self._require_accumulations
        expected = f"{required} accumulations (require_accumulations={required})"
        if self.state in _CLOSED_STATES:
            error: type[SynchronizerError] = LateAccumulationError
            headline = f"{name} accumulated a gradient after its bucket was launched"
        elif self._is_flushed:
            error = LateAccumulationError
            headline = f"{name} accumulated a gradient after flush()"
            expected = "no gradient between flush() and zero_grad()"
        else:
            error = TooManyAccumulationsError
            headline = f"{name} accumulated too many gradients"
        # A backward that goes on was counted when it brought its first gradient.
        count = view.num_accumulations + (not view.num_arrivals)
        nth = f", gradient {view.num_arrivals + 1} of one backward"
        return error(
            headline,
            expected=expected,
            got=f"accumulation {count} of {name}{nth if view.num_arrivals else ''}",
            where=f"{self.label}, {self.state.name.lower()}",
        )
