"""All buckets of a synchronizer from bind to unbind: hooks, launch order, release."""

import functools
import threading
from collections.abc import Callable, Iterable, Iterator
from contextlib import ExitStack, contextmanager

import torch
from torch import nn

from .attachment import Attachments
from .backward import BackwardWatch
from .bucket import Bucket
from .bucket_state import BucketState
from .config import SynchronizerConfig
from .errors import (
    ReductionFailedError,
    StepFailedError,
    SynchronizerError,
)
from .gradient_view import GradientView
from .grouping import BucketPlan
from .launch_order import LaunchOrder
from .missing import MissingGradients
from .process_groups import ReductionGroups
from .rendezvous import Rendezvous
from .streams import SideStream
from .timing import BucketTiming

_READY = BucketState.READY  # looked up once, and not in each hook


class BucketSequence:
    """Buckets that are filled in any order and launched in one.

    Args:
        plans: In launch order.
        require_accumulations: Of every parameter, in each step.
        config: All further options.
        rendezvous: Where to meet ranks that share buckets; None where there are none.

    Raises:
        GradientMismatchError: A `.grad` that exists does not fit its parameter.
    """

    def __init__(
        self,
        plans: Iterable[BucketPlan],
        *,
        require_accumulations: int,
        config: SynchronizerConfig,
        rendezvous: Rendezvous | None = None,
    ) -> None:
        self._config = config
        # In launch order, as are the buckets.
        self.plans: tuple[BucketPlan, ...] = tuple(plans)
        self.buckets: list[Bucket] = []
        self._launches = LaunchOrder(rendezvous, debug=config.debug)
        self.is_rebuilt = False  # whether the plans are those of `rebuild()`
        self._attachments = Attachments()
        self._views = self._attachments.views
        self._bucket_of = self._attachments.buckets
        # Who got a gradient in this step, by the last one; None once that was learned.
        self._observed: dict[int, None] | None = {} if config.may_rebuild else None
        # Whether the gradients of this step were given to the caller.
        self.is_reduced = False
        # Whether the buffers have no memory.
        self.is_offloaded = False
        # Of the buckets before a rebuild.
        self._kept_timings: tuple[BucketTiming, ...] = ()
        self._failure = ""  # why the gradients of this step cannot become right, if so
        # What ranks have said to lack.
        self.missing = MissingGradients(rendezvous)
        self._sides: dict[torch.device, SideStream] = {}
        self.groups = ReductionGroups()
        # Autograd runs the hooks of each device on a thread of its own.
        self._lock = threading.Lock()
        self._backward = BackwardWatch(lock=self._lock, on_end=self._end_backward)
        # Backwards of this step that ended and count.
        self.num_backwards = 0
        self._no_sync_depth = 0
        # Whether the running backward does; decided by where it starts.
        self._backward_counts = True
        try:
            self._allocate(require_accumulations)
        except BaseException:
            self.release()
            raise
        self._attachments.install_hooks(self)

    @property
    def is_learning(self) -> bool:
        """Whether it is not known yet in which order gradients become ready."""
        return self._observed is not None

    def stop_learning(self) -> list[nn.Parameter]:
        """List what got gradients in this step, and forget about the order.

        Returns:
            In the order of each parameter's last gradient.
        """
        observed, self._observed = self._observed or {}, None
        return [self._views[number].plan.parameter for number in observed]

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

    def catch_up(self, *, call: str) -> None:
        """Launch what peers have launched; the step is given up."""
        self._launches.catch_up(call=call)

    def view(self, number: int) -> GradientView:
        """Return the view of a parameter, by its number."""
        return self._views[number]

    def note_accumulation(self, number: int) -> None:
        """Count a gradient, and launch what has become ready.

        Args:
            number: Of the parameter; autograd has just accumulated into its view.

        Raises:
            Exception: Whatever goes wrong; it fails the step and ends the backward.
        """
        with self._lock:
            if self._failure:
                self.refuse_failed_step()
            if self._backward.was_interrupted:
                self.refuse_open_backward()
            view, bucket = self._views[number], self._bucket_of[number]
            try:
                if not self._backward.is_open:
                    self._backward_counts = not self._no_sync_depth
                    self._backward.open()
                bucket.accumulate(view, counts=self._backward_counts)
                if self._observed is not None:
                    self._observed.pop(number, None)
                    self._observed[number] = None
                if bucket.state is _READY:
                    self._launches.launch_ready()
            except Exception:
                self.fail()
                raise

    @contextmanager
    def no_sync(self) -> Iterator[None]:
        """Do not count the backwards that start inside; may be nested."""
        self._no_sync_depth += 1
        try:
            yield
        finally:
            self._no_sync_depth -= 1

    @torch.no_grad()
    def flush(self) -> None:
        """End the step with the gradients that came, and launch what is not launched."""
        with self._lock:
            for bucket in self.buckets:
                bucket.flush()
            try:
                self._launches.launch_ready()
            except Exception:
                self.fail()
                raise

    def scale(self, factor: float | torch.Tensor) -> None:
        """Multiply every gradient, reduced and local; the step is reduced.

        Args:
            factor: A number, or a tensor without dims.
        """
        for bucket in self.buckets:
            bucket.scale(factor)

    def finish(
        self, *, drop_unused: bool, scale: float | torch.Tensor | None = None
    ) -> None:
        """Launch what is left; order the current stream of every device after it all.

        Args:
            drop_unused: Whether `.grad` becomes None where no rank used the parameter.
            scale: Multiplies every gradient; a step that is reduced has none.

        Raises:
            ReductionFailedError: A process group reported a failure.
            GradientDisagreementError: A gradient differs between ranks that are checked.
            InFlightWriteError: Gradients were written meanwhile; debug mode only.
        """
        was_reduced = self.is_reduced
        if not was_reduced:
            self.flush()
        with self._failing():
            written = None if was_reduced else self._launches.check()
        for bucket in self.buckets:
            self._complete(bucket, functools.partial(bucket.finish, scale))
        # Every reduction is over by now, so that `zero_grad()` may start anew.
        with self._failing():
            for bucket in self.buckets:
                bucket.refuse_disagreement()
        if not was_reduced:
            for bucket in self.buckets:
                bucket.drop_scattered()
                if drop_unused:
                    bucket.drop_unused()
        # What overlaps: until here the current stream was free to compute. What orders
        # it: each side stream is ordered after its reductions, and now the current
        # stream after each side stream. On CPU the reductions are over by now.
        for side in self._sides.values():
            side.release_to(side.current())
        if written is not None:
            self.fail()
            raise written
        if not was_reduced:
            self.missing.note_reduced()
        self.is_reduced = True

    def timings(self) -> tuple[BucketTiming, ...]:
        """List when each bucket of the newest step that was waited for was reduced."""
        watches = (bucket.stopwatch for bucket in self.buckets)
        newest = (watch.newest for watch in watches if watch is not None)
        return tuple(timing for timing in newest if timing) or self._kept_timings

    def offload(self) -> None:
        """Give back the memory of all buffers; no step is running."""
        # First, so that `onload()` can undo one that ends half-way.
        self.is_offloaded = True
        for bucket in self.buckets:
            bucket.offload()

    def onload(self) -> None:
        """Undo `offload()`."""
        for bucket in self.buckets:
            bucket.onload()
        self.is_offloaded = False

    @torch.no_grad()  # once, and not for each gradient
    def restart(self, *, set_to_none: bool) -> None:
        """Start the next step; no reduction is in flight.

        Args:
            set_to_none: Whether every `.grad` becomes None rather than zero.
        """
        for bucket in self.buckets:
            bucket.restart(set_to_none=set_to_none)
        self.is_reduced = False
        self.num_backwards = 0
        self._backward.close()
        if self._observed is not None:
            self._observed.clear()
        self.missing.take_back()
        self._launches.restart()
        self._failure = ""

    def rebuild(
        self, plans: Iterable[BucketPlan], *, require_accumulations: int
    ) -> None:
        """Move every gradient to other buckets, see Note [What a rebuild keeps].

        Args:
            plans: Of the same parameters, in launch order.
            require_accumulations: Of every parameter, in each step.

        Raises:
            Exception: The new buffers cannot be allocated; then release everything.
        """
        learned = [view.expected_arrivals for view in self._views]
        self._kept_timings = self.timings()
        # The memory first: `release` orders it after everybody who used it, and nobody
        # here may keep a view of it.
        for bucket in self.buckets:
            bucket.release()
        self.buckets.clear()
        self._launches.buckets.clear()
        self._attachments.forget()
        self.plans = tuple(plans)
        self._allocate(require_accumulations)
        for view, count in zip(self._views, learned, strict=True):
            view.expected_arrivals = count
        self.is_rebuilt = True

    def release(self) -> None:
        """Leave no hook, no buffer, no group of ours, and no reduction in flight.

        Raises:
            ReductionFailedError: A process group reported a failure; all is released.
        """
        # Last in, first out, each of them even if another fails: no memory is given
        # back before nothing can use it any more.
        with ExitStack() as stack:
            stack.callback(self._forget)
            stack.callback(self.groups.destroy)
            for bucket in self.buckets:
                stack.callback(bucket.release)
            for bucket in self.buckets:
                stack.callback(self._complete, bucket, bucket.abandon)
            stack.callback(self._attachments.remove_hooks)

    def _forget(self) -> None:
        """Let go of every view: an error's traceback may keep this object alive."""
        self.buckets.clear()
        self._launches.forget()
        self._attachments.forget()
        self._observed = None

    def _allocate(self, require_accumulations: int) -> None:
        """Make the buckets, and put a view of them into every `.grad`."""
        last = max((plan.index for plan in self.plans if plan.scope), default=None)
        for plan in self.plans:
            device = plan.key.device
            if device not in self._sides:
                self._sides[device] = SideStream(device)
            bucket = Bucket(
                plan,
                side=self._sides[device],
                groups=self.groups,
                require_accumulations=require_accumulations,
                config=self._config,
                is_last=plan.index == last,
            )
            self.buckets.append(bucket)
        self._launches.enter(self.buckets)
        self._attachments.enter(self.buckets)

    def _end_backward(self) -> None:
        """Settle what the backward brought, see Note [When a gradient is complete]."""
        if self._failure:
            return
        with self._failing():
            self.num_backwards += self._backward_counts
            for bucket in self.buckets:
                bucket.end_backward()
            self._launches.launch_ready()

    @contextmanager
    def _failing(self) -> Iterator[None]:
        """Let whatever goes wrong inside fail the step."""
        try:
            yield
        except Exception:
            self.fail()
            raise

    def _complete(self, bucket: Bucket, finish: Callable[[], None]) -> None:
        try:
            finish()
        except SynchronizerError:
            self.fail()
            raise
        except Exception as error:
            self.fail()
            raise ReductionFailedError(
                f"the reduction of {bucket.label} failed",
                expected="every rank to take part, and none to leave",
                got=f"{type(error).__name__}: {error}{self.missing.of_others()}",
                where=bucket.label,
            ) from error
