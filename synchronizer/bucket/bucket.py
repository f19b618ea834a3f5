"""One bucket: its flat buffer, the gradient views into it, and its reduction.

Note [Users of the buffer]
~~~~~~~~~~~~~~~~~~~~~~~~~~
    state                  code that may use the buffer
    accumulating, ready    backward, which adds into the views on any stream
    launched               the reduction alone; any other write races with it
    reduced                the caller, on streams that are ordered after `wait()`; of a
                           scattered bucket only the part that this rank owns

A bucket keeps one buffer from bind to release, and frees it only when no reduction is
in flight. So no reduction can find its memory in use by other code. Buckets are
replaced at one place only, see Note [Effects of a rebuild].

Note [Writes that no hook sees]
~~~~~~~~~~~~~~~~~~~~~~~~~~~~~~~
Autograd calls a hook for each accumulation. A write to `.grad` by other code calls no
hook, and between launch and `wait()` it races with the reduction. torch counts in-place
writes to a tensor in `_version`, which is how it detects writes to tensors that
autograd has saved. Views share the count of their buffer; a DTensor counts its
operations by itself. So both counts are compared. Such a write may come from a hook of
the user on an AccumulateGrad node, which torch calls after the hooks of the parameter.

    counted        in-place operations on the buffer, on a view, on a DTensor
    not counted    results of a process group (a test shows it for gloo): no false alarm
    not seen       `torch._foreach_...` on DTensors, writes of a kernel through a
                   pointer, writes through a `.data` that was taken before
"""

import time
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from enum import Enum, auto
from functools import cached_property
from itertools import compress, groupby
from operator import attrgetter, is_

import torch
from torch.distributed.tensor import DTensor

from syncverify.synchronizer.bucket.finite_check import FiniteCheck
from syncverify.synchronizer.bucket.gradient_view import GradientView, pack
from syncverify.synchronizer.contract.config import SynchronizerConfig
from syncverify.synchronizer.contract.errors import LateAccumulationError
from syncverify.synchronizer.plan import ownership
from syncverify.synchronizer.plan.grouping import BucketPlan
from syncverify.synchronizer.plan.norm_plan import NormRun, norm_runs
from syncverify.synchronizer.ranks.process_groups import ReductionGroups
from syncverify.synchronizer.transport.reduction import (
    BucketReduction,
    SideStream,
    Stream,
    profiled,
)

# Gradients of the host are copied in pieces of this size, a part of a core's own cache.
PIECE_BYTES = 256 * 2**10

_grad = attrgetter("grad")
_address = torch.Tensor.data_ptr


class BucketState(Enum):
    """The state of a bucket in its step, see Note [Users of the buffer]."""

    ACCUMULATING = auto()
    READY = auto()
    LAUNCHED = auto()
    REDUCED = auto()


@dataclass(slots=True)
class BucketTimes:
    """Times of one bucket in the newest step in which it became ready.

    Times are those of the host, `time.perf_counter_ns`. On CPU the reduction is complete
    at `done_ns`. On an accelerator it is then only ordered before later work of the host;
    only a profile shows when the device is done.

    Attributes:
        ready_ns: Time at which every gradient had come, or the step was flushed.
        launched_ns: Time at which the reduction was queued; None where the bucket stays
            local.
        done_ns: Time at which the first `wait()` had waited for the bucket.
    """

    ready_ns: int
    launched_ns: int | None = None
    done_ns: int | None = None


class Bucket:
    """A flat buffer whose gradients are counted and reduced together.

    The buffer is allocated zeroed, on the device of `side`, the stream for reductions.
    `is_last` marks the bucket that is launched last in a step. Keep it under 30 attributes:
    Python 3.11 finds those of an object with more in a dict, which slows each gradient.
    """

    def __init__(
        self,
        plan: BucketPlan,
        *,
        side: SideStream,
        groups: ReductionGroups,
        require_accumulations: int | None,
        config: SynchronizerConfig,
        is_last: bool,
    ) -> None:
        self.plan = plan
        self.label = f"bucket {plan.index}"
        self.state = BucketState.ACCUMULATING
        # Whether a further gradient has a place: neither launched nor flushed.
        self._is_open = True
        # Whether every gradient lies in the buffer.
        self.is_packed = False
        self.require_accumulations = require_accumulations
        self._side, self._queues = side, side.queues
        self._owned = ownership.owned_range(plan, groups)
        self.reduction = BucketReduction(
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
        self._place_views(
            [
                GradientView.of(member, self._buffer, offset, side)
                for member, offset in zip(plan.members, plan.offsets_numel, strict=True)
            ]
        )
        # A DTensor may have to be redistributed first, by ranks in one order.
        self._takes_over_soon = not (
            self._queues or self._dtensor_views or config.gradient_hook == "cpp"
        )
        self.times: BucketTimes | None = None  # before the first step
        # Of all values before the sum, and of the owned ones after it.
        self.checks: tuple[FiniteCheck, FiniteCheck] | None = None
        if config.check_finite:
            everything = range(plan.buffer_numel)
            self.checks = FiniteCheck(plan, everything), FiniteCheck(plan, self._owned)
        self._flags: torch.Tensor | None = None
        if (start := plan.flags_offset_numel) is not None:
            self._flags = self._buffer[start : start + len(self.views)]
        # Whether gradients may be counted some time after they came.
        self.collects = not self._queues and self._flags is None
        # An element for each view that is not complete. A list, and no number, because
        # `pop` needs no lock.
        self.incomplete = [*self.plan.offsets_numel]
        # Views that may get further gradients in the running backward.
        self._unsettled: list[GradientView] = []
        # Complete views whose gradients lie elsewhere, and the bytes of these gradients.
        self._outside: list[GradientView] = []
        self._outside_bytes = 0
        # torch's counts of writes after the last gradient, and at the launch.
        self._seen_version = self._buffer._version  # noqa: SLF001
        self._launched_versions: list[int] = []

    def _place_views(self, views: list[GradientView]) -> None:
        self.views = views
        self._dtensor_views = [v for v in views if isinstance(v.gradient, DTensor)]
        # Apart from the views, for `detached`.
        self._places = [v.parameter for v in views], [v.address for v in views]

    def unfinished(self) -> list[GradientView]:
        """List the views with fewer accumulations than required, unless flushed."""
        required = self.require_accumulations
        if self.state is not BucketState.ACCUMULATING or required is None:
            return []
        return [view for view in self.views if view.num_accumulations < required]

    def unused(self) -> list[GradientView]:
        """List the views to which no backward of this step came."""
        if not self.incomplete:
            return []
        return [v for v in self.views if not (v.is_used or v.num_accumulations)]

    def accumulate(self, view: GradientView, backward: object, counts: bool) -> None:  # noqa: FBT001  # faster without its name
        """Count one more gradient, in constant time.

        `.grad` of the view holds the gradient that autograd has just accumulated.
        `backward` is the same object for all gradients of one backward, and `counts` tells
        whether it is one of those that the step requires. All that a bucket can find out
        later for all of its gradients is left to `launch`, since this runs for each of them.
        """
        is_first, counted = view.backward is not backward, view.num_accumulations
        if not self._is_open or (is_first and counted == self.require_accumulations):
            raise self._excess_error(view, 0 if is_first else view.num_arrivals)
        if view.arrival_placements:
            view.refuse_reduced_gradient()
        if is_first:
            view.backward, arrivals = backward, 1
            view.num_accumulations = counted = counted + counts
        else:
            arrivals = view.num_arrivals + 1
        view.num_arrivals = arrivals
        if self._queues:
            # Autograd runs this hook on the stream of the accumulation, which may differ
            # between parameters and between micro-batches.
            self._writers[self._side.current()] = None
        gradient = view.parameter.grad
        if gradient is None:
            view.is_undefined = True
        elif self._flags is None or self._was_written(view, gradient):
            view.is_used = True
        if arrivals != view.expected_arrivals:
            view.expected_arrivals = max(view.expected_arrivals, arrivals)
            self._unsettled.append(view)
        elif counted == self.require_accumulations:
            self.settle(view)
            return
        if view.starts_as_none and not view.is_complete:
            self._take_over([view])

    def settle(self, view: GradientView) -> None:
        """Count a view if it is complete; `note_complete` has to follow the last one."""
        if view.is_complete or view.num_accumulations != self.require_accumulations:
            return
        view.is_complete = True
        self.incomplete.pop()
        if view.starts_as_none and self._takes_over_soon:
            self._take_over_soon(view)

    def end_backward(self) -> None:
        """Complete the views of the running backward, which ends."""
        while self._unsettled:
            self.settle(self._unsettled.pop())
        self.note_complete()

    def note_complete(self) -> None:
        """Become ready if every view is complete; harmless if not, and afterwards."""
        if not self.incomplete and self.state is BucketState.ACCUMULATING:
            self._become_ready()

    def _become_ready(self) -> None:
        self.state = BucketState.READY
        self.times = BucketTimes(time.perf_counter_ns())

    def flush(self) -> None:
        """End the step with the gradients so far; no backward is running."""
        self._is_open = False
        if self.state is BucketState.ACCUMULATING:
            self._become_ready()
        if not self.plan.scope and not self.is_packed:
            # As after a reduction: whoever waits for the side stream, for the gradients or
            # for their memory, comes after backward.
            self._side.wait_for(self._writers)
            with self._side.activate():
                self._pack()

    def launch(self, *, packs: bool = True) -> None:
        """Start the reduction of the buffer over its ranks.

        `packs` is False in a step that is given up, whose gradients may be anything.
        """
        if self._flags is not None:
            _write_flags(self._flags, [view.is_used for view in self.views])
            self._writers[self._side.current()] = None
        # What overlaps: the rest of backward, on any stream, with this reduction. What
        # orders it: every stream in `_writers` has queued its last write to a gradient,
        # and the side stream waits for each of them. The stream of the last hook alone
        # would not be enough.
        self._side.wait_for(self._writers)
        with self._side.activate(), profiled(f"launch {self.label}"):
            if packs:
                self._pack()
            if self.checks:
                self.checks[0].run(self._buffer)
            self.reduction.start(self._buffer)
        self.state, self._is_open = BucketState.LAUNCHED, False
        self._launched_versions = self._versions()
        if self.times:
            self.times.launched_ns = time.perf_counter_ns()

    def _take_over_soon(self, view: GradientView) -> None:
        """Copy gradients into their views while the caches of the host still have them."""
        self._outside.append(view)
        self._outside_bytes += view.local.nbytes
        if self._outside_bytes >= PIECE_BYTES:
            self._take_over(self._outside)
            self._outside.clear()
            self._outside_bytes = 0

    def _take_over(self, views: Iterable[GradientView]) -> None:
        """Copy gradients into their views, on the stream that made them.

        They would take memory beside the buffer until the last gradient comes.
        """
        # A later backward may differentiate a gradient that requires grad.
        movable = [
            view
            for view in views
            if (gradient := view.parameter.grad) is not None
            and not gradient.requires_grad
        ]
        pack([v for v in movable if not v.is_attached()], self._side, self.label)
        self._seen_version = self._buffer._version  # noqa: SLF001
        for view in movable:
            view.starts_as_none = False  # taken over

    def detached(self) -> list[GradientView]:
        """List the views that are no longer `.grad`, or no longer lie in the buffer."""
        # Without a call of Python for each ordinary gradient, because this is part of backward.
        if not self._dtensor_views:
            parameters, addresses = self._places
            gradients = [view.gradient for view in self.views]
            are_views = all(map(is_, map(_grad, parameters), gradients))
            if are_views and [*map(_address, gradients)] == addresses:
                return []
        return [view for view in self.views if not view.is_attached()]

    def written_in_flight(self) -> str:
        """Name the gradients that were written since the launch; "" for none.

        A write to the buffer is counted for all its views together. See Note [Writes that no
        hook sees].
        """
        if self.state is not BucketState.LAUNCHED:
            return ""
        both = zip(self._versions(), self._launched_versions, strict=True)
        buffer, *gradients = [now != then for now, then in both]
        views = self.views if buffer else [*compress(self._dtensor_views, gradients)]
        names = ", ".join(view.plan.name for view in views)
        return f"one of {names}" if buffer else names

    def _versions(self) -> list[int]:
        """Return torch's count of writes to the buffer, and then to each DTensor."""
        tensors = [self._buffer, *(view.gradient for view in self._dtensor_views)]
        return [tensor._version for tensor in tensors]  # noqa: SLF001

    def _pack(self) -> None:
        self.is_packed = True
        pack(self.detached(), self._side, self.label)

    def abandon(self) -> None:
        """Wait for the reduction, if it is in flight; nobody wants its sums."""
        with self._side.activate():
            self.reduction.finish(self._buffer, 1.0)
        self.state, self._is_open = BucketState.REDUCED, False

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
            is_reduced = self.reduction.finish(self._buffer, factor)
            if self.checks and (is_reduced or self.state is BucketState.READY):
                self.checks[is_reduced].run(self._buffer)
        if scale is not None and not is_reduced:
            self.scale(scale)
        if self.times:
            self.times.done_ns = self.times.done_ns or time.perf_counter_ns()
        self.state, self._is_open = BucketState.REDUCED, False

    def drop_unused(self) -> None:
        """Set `.grad` to None where no rank used the parameter, after the reduction."""
        used = [float(view.is_used) for view in self.views]
        if self._flags is not None:
            with self._side.activate():  # ordered after the reduction
                used = self._flags.tolist()
        for view, num_ranks in zip(self.views, used, strict=True):
            if not num_ranks:
                view.drop()

    def drop_scattered(self) -> None:
        """Set `.grad` to None in a scattered bucket, which is reduced."""
        if self.plan.num_shards > 1:
            for view in self.views:
                view.drop()

    def owned_gradients(self) -> Iterator[ownership.OwnedGradient]:
        """Yield the owned part of each gradient; the bucket is reduced."""
        return ownership.owned_gradients(self.plan, self._buffer, self._owned)

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
        # which may differ from this stream. So this stream waits for the reduction as
        # well, and for the writers of a step that no caller waited for.
        if self.state is not BucketState.REDUCED:
            self._side.wait_for(self._writers)
        self._side.release_to(current)
        if not set_to_none:
            self._buffer.zero_()
        self._writers = {current: None}
        for view in self.views:
            view.restart(set_to_none=set_to_none)
        if not set_to_none:
            for view in self.detached():
                view.attach()
        self.incomplete = [*self.plan.offsets_numel]
        self._unsettled.clear()
        self._outside.clear()
        self._outside_bytes = 0
        self._seen_version = self._buffer._version  # noqa: SLF001
        self.is_packed = False
        self.state, self._is_open = BucketState.ACCUMULATING, True

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
        self._place_views([])
        self._unsettled.clear()
        self._outside.clear()
        self._flags = None
        del self._buffer

    def _was_written(self, view: GradientView, gradient: torch.Tensor) -> bool:
        """Return whether autograd has written a gradient, as far as torch counts that."""
        seen, now = self._seen_version, self._buffer._version  # noqa: SLF001
        self._seen_version = now
        # A DTensor counts by itself; a function on its local tensor defines a gradient.
        is_dtensor = isinstance(gradient, DTensor)
        return is_dtensor or gradient is not view.gradient or seen != now

    def _excess_error(
        self, view: GradientView, num_arrivals: int
    ) -> LateAccumulationError:
        """Return the error for a gradient that has no place in its step."""
        name, required = view.plan.name, self.require_accumulations
        expected = f"{required} accumulations (require_accumulations={required})"
        if self.state in {BucketState.LAUNCHED, BucketState.REDUCED}:
            headline = f"{name} accumulated a gradient after its bucket was launched"
            if self.state is BucketState.REDUCED:
                expected += ", then synchronizer.zero_grad() before the next backward"
        elif not self._is_open:
            headline = f"{name} accumulated a gradient after flush()"
            expected = "no gradient between flush() and synchronizer.zero_grad()"
        else:
            headline = f"{name} accumulated too many gradients"
        # The count includes the running backward since its first gradient.
        count = view.num_accumulations + (not num_arrivals)
        nth = f", gradient {num_arrivals + 1} of one backward" if num_arrivals else ""
        return LateAccumulationError(
            headline,
            expected=expected,
            got=f"accumulation {count} of {name}{nth}",
            where=f"{self.label}, {self.state.name.lower()}",
        )


def _write_flags(flags: torch.Tensor, used: Iterable[bool]) -> None:
    """Write, on the current stream, which members this rank has used.

    The sum of the flags, of shape (members,), counts ranks in a dtype that may round. Only
    0 is exact, and only 0 is needed. A copy of host memory would make the host wait for the
    device, and cannot be captured in a CUDA graph.
    """
    start = 0
    for is_used, run in groupby(used):
        end = start + sum(1 for _ in run)
        flags[start:end].fill_(is_used)
        start = end
