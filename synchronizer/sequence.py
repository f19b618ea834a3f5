"""All buckets of a synchronizer from bind to unbind: hooks, launch order, release."""

import threading
import weakref
from collections.abc import Callable, Iterable, Iterator
from contextlib import ExitStack, contextmanager

import torch
from torch.distributed.tensor import DTensor
from torch.utils.hooks import RemovableHandle

from .backward import BackwardWatch
from .bucket import Bucket, BucketState
from .errors import ReductionFailedError, StepFailedError
from .gradient_view import GradientView
from .grouping import BucketPlan
from .process_groups import ReductionGroups
from .streams import SideStream


class BucketSequence:
    """Buckets that are filled in any order and launched in one.

    Args:
        plans: In launch order.
        require_accumulations: Of every parameter, in each step.

    Raises:
        GradientMismatchError: A `.grad` that exists does not fit its parameter.
    """

    def __init__(
        self, plans: Iterable[BucketPlan], *, require_accumulations: int
    ) -> None:
        self.buckets: list[Bucket] = []
        # Whether the gradients of this step were given to the caller.
        self.is_reduced = False
        # Why the gradients of this step cannot become right any more, if so.
        self._failure = ""
        self._num_launched = 0
        self._sides: dict[torch.device, SideStream] = {}
        self._groups = ReductionGroups()
        # Autograd runs the hooks of each device on a thread of its own.
        self._lock = threading.Lock()
        self._backward = BackwardWatch(lock=self._lock, on_end=self._end_backward)
        # Backwards of this step that ended and count.
        self.num_backwards = 0
        self._no_sync_depth = 0
        # Whether the running backward does; decided by where it starts.
        self._backward_counts = True
        self._handles: list[RemovableHandle] = []
        # Parameters outlive synchronizers: the hooks go with this object even if nobody
        # calls `release`.
        weakref.finalize(self, _remove_all, self._handles).atexit = False
        try:
            self._allocate(plans, require_accumulations)
        except BaseException:
            self.release()
            raise
        # The buckets that communicate; local ones hold nobody up.
        self._launch_order = [b for b in self.buckets if b.is_reduced_over_ranks]
        self._attach()

    def refuse_failed_step(self) -> None:
        """Refuse to go on with a step in which some gradient is wrong.

        Raises:
            StepFailedError: There was an error since the last restart.
        """
        if self._failure:
            raise StepFailedError(
                "the step went on after an error",
                expected="zero_grad() or unbind() after an error",
                got=self._failure,
            )

    def refuse_open_backward(self) -> None:
        """Refuse to go on before the backward that is running has ended.

        Raises:
            StepFailedError: It has not ended, or was interrupted and never will.
        """
        if self._backward.is_open:
            self.fail("gradients of a backward that did not end")
            self.refuse_failed_step()

    def fail(
        self, failure: str = "gradients that an earlier error made unusable"
    ) -> None:
        """Mark the gradients of this step as unusable.

        Args:
            failure: What it is that the step has.
        """
        self._failure = self._failure or failure

    def note_accumulation(self, bucket: Bucket, view: GradientView) -> None:
        """Count a gradient, and launch what has become ready.

        Args:
            bucket: Of this sequence.
            view: Of the bucket; autograd has just accumulated into it.

        Raises:
            Exception: Whatever goes wrong; it fails the step and ends the backward.
        """
        # Not `with`, which takes twice as long, for every gradient.
        self._lock.acquire()
        try:
            self.refuse_failed_step()
            if self._backward.was_interrupted:
                self.refuse_open_backward()
            try:
                if not self._backward.is_open:
                    self._backward_counts = not self._no_sync_depth
                    self._backward.open()
                bucket.accumulate(view, counts=self._backward_counts)
                self._launch_ready()
            except Exception:
                self.fail()
                raise
        finally:
            self._lock.release()

    @contextmanager
    def no_sync(self) -> Iterator[None]:
        """Do not count the backwards that start inside; may be nested."""
        self._no_sync_depth += 1
        try:
            yield
        finally:
            self._no_sync_depth -= 1

    def flush(self) -> None:
        """End the step with the gradients that came, and launch what is not launched."""
        with self._lock:
            for bucket in self.buckets:
                bucket.flush()
            self._launch_ready()

    def scale(self, factor: float | torch.Tensor) -> None:
        """Multiply every gradient, reduced and local; the step is reduced.

        Args:
            factor: A number, or a tensor without dims.
        """
        for bucket in self.buckets:
            bucket.scale(factor)

    def finish(
        self, *, drop_unused: bool, factor: float | torch.Tensor | None = None
    ) -> None:
        """Launch what is left; order the current stream of every device after it all.

        Args:
            drop_unused: Whether `.grad` becomes None where no rank used the parameter.
            factor: Multiplies every gradient, reduced and local, unless it is None.

        Raises:
            ReductionFailedError: A process group reported a failure.
        """
        was_reduced = self.is_reduced
        if not was_reduced:
            self.flush()
        for bucket in self.buckets:
            self._finish(bucket)
            if drop_unused and not was_reduced:
                bucket.drop_unused()
            if factor is not None:
                # What overlaps: the reductions of the buckets after this one.
                bucket.scale(factor)
        # What overlaps: until here the current stream was free to compute. What orders
        # it: each side stream is ordered after its reductions, and now the current
        # stream after each side stream. On CPU the reductions are over by now.
        for side in self._sides.values():
            side.release_to(side.current())
        self.is_reduced = True

    @torch.no_grad()  # once, and not for each gradient
    def restart(self) -> None:
        """Zero every gradient and start the next step; no reduction is in flight."""
        for bucket in self.buckets:
            bucket.restart()
        self._num_launched = 0
        self.is_reduced = False
        self.num_backwards = 0
        self._backward.close()
        self._failure = ""

    def release(self) -> None:
        """Leave no hook, no buffer, no group of ours, and no reduction in flight.

        Raises:
            ReductionFailedError: A process group reported a failure; all is released.
        """
        # Last in, first out, each of them even if another fails: no memory is given
        # back before nothing can use it any more.
        with ExitStack() as stack:
            stack.callback(self.buckets.clear)
            stack.callback(self._groups.destroy)
            for bucket in reversed(self.buckets):
                stack.callback(bucket.release)
            for bucket in reversed(self.buckets):
                stack.callback(self._finish, bucket)
            stack.callback(_remove_all, self._handles)

    def _allocate(
        self, plans: Iterable[BucketPlan], require_accumulations: int
    ) -> None:
        for plan in plans:
            device = plan.key.device
            if device not in self._sides:
                self._sides[device] = SideStream(device)
            bucket = Bucket(
                plan,
                side=self._sides[device],
                groups=self._groups,
                require_accumulations=require_accumulations,
            )
            self.buckets.append(bucket)

    def _attach(self) -> None:
        sequence = weakref.ref(self)
        for bucket in self.buckets:
            accumulation_hook = _accumulation_hooks(sequence, weakref.ref(bucket))
            for index, view in enumerate(bucket.views):
                view.attach()
                parameter = view.plan.parameter
                if view.plan.reduce_axes:
                    hook = _arrival_hook(weakref.ref(view))
                    self._handles.append(parameter.register_hook(hook))
                counting = accumulation_hook(index)
                self._handles.append(
                    parameter.register_post_accumulate_grad_hook(counting)
                )

    def _end_backward(self) -> None:
        """Settle what the backward brought, see Note [When a gradient is complete]."""
        if self._failure:
            return
        try:
            self.num_backwards += self._backward_counts
            for bucket in self.buckets:
                bucket.end_backward()
            self._launch_ready()
        except Exception:
            self.fail()
            raise

    def _launch_ready(self) -> None:
        """Launch as far as the order allows, see Note [One launch order]."""
        while self._num_launched < len(self._launch_order):
            bucket = self._launch_order[self._num_launched]
            if bucket.state is not BucketState.READY:
                return
            bucket.launch()
            self._num_launched += 1

    def _finish(self, bucket: Bucket) -> None:
        try:
            bucket.finish()
        except Exception as error:
            self.fail()
            raise ReductionFailedError(
                f"the all-reduce of {bucket.label} failed",
                expected="every rank to take part, and none to leave",
                got=f"{type(error).__name__}: {error}",
                where=bucket.label,
            ) from error


def _arrival_hook(
    view_reference: weakref.ref[GradientView],
) -> Callable[[torch.Tensor], None]:
    """Note the placements of a gradient; runs for `torch.autograd.grad` as well."""

    def on_arrival(gradient: torch.Tensor) -> None:
        view = view_reference()
        if view is not None and isinstance(gradient, DTensor):
            view.arrived_as = gradient.placements

    return on_arrival


def _accumulation_hooks(
    sequence_reference: weakref.ref[BucketSequence],
    bucket_reference: weakref.ref[Bucket],
) -> Callable[[int], Callable[[torch.Tensor], None]]:
    """Make a factory of hooks that count what was accumulated into views of a bucket."""
    # The hooks share what they can: with thousands of parameters each finds whatever is
    # its own outside of the processor's caches.

    def accumulation_hook(view_index: int) -> Callable[[torch.Tensor], None]:
        def on_accumulation(_: torch.Tensor) -> None:
            sequence, bucket = sequence_reference(), bucket_reference()
            if sequence is not None and bucket is not None:
                sequence.note_accumulation(bucket, bucket.views[view_index])

        return on_accumulation

    return accumulation_hook


def _remove_all(handles: list[RemovableHandle]) -> None:
    while handles:
        handles.pop().remove()
