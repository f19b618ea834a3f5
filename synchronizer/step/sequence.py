"""All buckets of a synchronizer from bind to unbind: hooks, launch order, release."""

import threading
import weakref
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from functools import partial
from weakref import WeakKeyDictionary, WeakSet

import torch
import torch.distributed as dist
from torch import nn

from syncverify.synchronizer.backward.autograd_hooks import (
    Attachments,
    BackwardWatch,
    running_backward,
)
from syncverify.synchronizer.backward.collector import new_collector
from syncverify.synchronizer.backward.partial_gradients import (
    may_arrive_partial,
    relabelled,
)
from syncverify.synchronizer.bucket.bucket import Bucket, BucketState
from syncverify.synchronizer.bucket.gradient_view import GradientView
from syncverify.synchronizer.contract.config import SynchronizerConfig
from syncverify.synchronizer.contract.errors import (
    InFlightWriteError,
    InvalidArgumentError,
    LifecycleError,
    ReductionFailedError,
    StepFailedError,
    SynchronizerError,
)
from syncverify.synchronizer.plan.grouping import BucketPlan
from syncverify.synchronizer.ranks.notes import Notes
from syncverify.synchronizer.ranks.process_groups import ReductionGroups
from syncverify.synchronizer.transport.comm_hook_transport import (
    HookState,
    HookTransport,
)
from syncverify.synchronizer.transport.reduction import SideStream

_READY = BucketState.READY  # a global, so that a hook looks it up once
_LEFT: list[object] = []  # memory of reductions that nobody waits for


class BucketSequence:
    """Buckets that become ready in any order and are launched in one order."""

    def __init__(
        self,
        plans: Iterable[BucketPlan],
        *,
        require_accumulations: int | None,
        config: SynchronizerConfig,
        notes: Notes | None,
    ) -> None:
        self._config, self.notes = config, notes
        self.require_accumulations = require_accumulations  # None until it is set
        # Plans and buckets are in launch order.
        self.plans: tuple[BucketPlan, ...] = tuple(plans)
        self.buckets: list[Bucket] = []
        # Buckets that communicate, of which the first ones are launched. A local bucket
        # delays no other.
        self.shared_buckets: list[Bucket] = []
        self._num_launched = 0
        self._bound = WeakSet[BucketSequence]()
        default_group = dist.group.WORLD
        if default_group is not None and any(plan.scope for plan in self.plans):
            self._bound = _bound.setdefault(default_group, self._bound)
            self._bound.add(self)
        self.is_rebuilt = False  # whether the plans are those of `rebuild()`
        self._attachments = Attachments()
        self._views = self._attachments.views
        self._bucket_of = self._attachments.buckets
        # Numbers of parameters with a gradient in this step, in the order of their last
        # gradients. None once the order was learned.
        self._observed: dict[int, None] | None = {} if config.rebuild else None
        # Whether `wait()` has given the gradients of this step to the caller.
        self.is_reduced = False
        self._failure = ""  # the error that made gradients of this step wrong, if any
        self._side_streams: dict[torch.device, SideStream] = {}
        self.groups = ReductionGroups()
        # Autograd has one thread for the hooks of each device.
        self._lock = threading.Lock()
        self._backward = BackwardWatch(lock=self._lock, on_end=self._end_backward)
        self.num_backwards = 0  # counted backwards of this step that have ended
        self._no_sync_depth = 0
        # Whether the running backward counts; decided when it starts.
        self._backward_counts = True
        # The running backward, of which all gradients count once, and the number of the
        # innermost one that brought the newest gradient.
        self._token = object()
        self._number: int | None = None
        self._collector = None
        if config.gradient_hook == "cpp":
            self._collector = new_collector(_counting(weakref.ref(self)))
        self._starts_as_none = False  # whether the step started with None in `.grad`
        try:
            self._allocate()
        except BaseException:
            self.release()
            raise
        arriving = [may_arrive_partial(view.plan) for view in self._views]
        self._attachments.install_hooks(self, self._collector, arriving)

    @property
    def in_flight(self) -> list[Bucket]:
        """Buckets that are launched and not waited for."""
        return [b for b in self.buckets if b.state is BucketState.LAUNCHED]

    def stop_learning(self) -> list[nn.Parameter] | None:
        """Return the parameters in the order of their last gradients, once; then None."""
        observed, self._observed = self._observed, None
        if observed is None:
            return None
        return [self._views[number].plan.parameter for number in observed]

    def exchanged(self) -> list[GradientView]:
        """List the views that have lost their hooks, if any view misses a gradient."""
        if not any(bucket.unfinished() for bucket in self.buckets):
            return []
        return self._attachments.exchanged()

    def refuse_unsound_step(self) -> None:
        """Refuse wrong or incomplete gradients; fail the step of an open backward."""
        if self._backward.is_open:
            self.fail("gradients of a backward that did not end")
        self._refuse_failed_step()

    def _refuse_failed_step(self) -> None:
        if self._failure:
            raise StepFailedError(
                "the step went on after an error",
                expected="synchronizer.zero_grad() or unbind() after an error",
                got=self._failure,
            )

    def known_count(self, call: str) -> int:
        """Return the number of backwards in a step, which `call` needs.

        Raises:
            LifecycleError: The number was never set.
        """
        if self.require_accumulations is None:
            raise LifecycleError(
                f"{call} was called before the required accumulations were set",
                expected="a number of backwards in a step, before its first backward",
                got="no require_accumulations, and no set_required_accumulations()",
                hint="call set_required_accumulations(count) before the first backward; after"
                " a backward without it, call synchronizer.zero_grad() as well",
            )
        return self.require_accumulations

    def require(self, require_accumulations: int) -> None:
        """Set the required accumulations of every parameter; no step has started."""
        self.require_accumulations = require_accumulations
        for bucket in self.buckets:
            bucket.require_accumulations = require_accumulations

    def fail(
        self, failure: str = "gradients that an earlier error made unusable"
    ) -> None:
        """Mark the gradients of this step as unusable; `failure` is a noun phrase."""
        self._failure = self._failure or failure
        self._number = None  # so that the next gradient is refused
        if self._collector:
            self._collector.stop()

    def note_arrival(self, number: int, gradient: torch.Tensor) -> torch.Tensor | None:
        """Return what to accumulate in place of a Partial gradient."""
        return relabelled(gradient, self._views[number])

    def note_accumulation(self, number: int) -> None:
        """Count a gradient in its view, and launch the buckets that became ready."""
        # Without the lock, which would take a third of the time: the counts are those of
        # a bucket, and so of one device. Autograd may run hooks of several devices at the
        # same time, on a thread for each.
        try:
            if running_backward() != self._number:
                with self._lock:
                    self._enter_backward()
            bucket = self._count(number, self._token, self._backward_counts)
            if not bucket.incomplete:
                with self._lock:
                    bucket.note_complete()
                    if self._attachments.runs_last(number, self):
                        self._launch_in_order()
        except Exception:
            self.fail()
            raise

    def _count(self, number: int, backward: object, counts: bool) -> Bucket:  # noqa: FBT001  # faster without its name
        bucket = self._bucket_of[number]
        bucket.accumulate(self._views[number], backward, counts)
        if self._observed is not None:
            self._observed.pop(number, None)  # it is to be the last one
            self._observed[number] = None
        return bucket

    def count_collected(self) -> None:
        """Count the gradients that a hook in C++ has collected."""
        if self._collector:
            with self._failing():
                for number in self._collector.take():
                    self._count(number, self._token, self._backward_counts)

    def _enter_backward(self) -> None:
        """Begin to count another backward, or go on in an outer or an inner one."""
        self._refuse_failed_step()
        self.known_count("backward()")
        if self._backward.was_interrupted:
            self.refuse_unsound_step()
        if not self._backward.is_open:
            self._backward_counts = not self._no_sync_depth
            self._token = object()
            self._backward.open()
        self._number = running_backward()
        if self._collector:
            missing = [len(b.incomplete) if b.collects else 0 for b in self.buckets]
            self._collector.start(self._number, missing, self._starts_as_none)

    def _end_backward(self) -> None:
        """Complete the gradients of the backward, see Note [When a gradient is complete]."""
        if self._failure:
            return
        with self._failing():
            self.count_collected()
            self.num_backwards += self._backward_counts
            for bucket in self.buckets:
                bucket.end_backward()
            self._launch_in_order()

    @torch.no_grad()
    def mark_ready(self, parameters: Iterable[nn.Parameter]) -> None:
        """Count a gradient of each parameter that no backward has brought."""
        self.count_collected()
        numbers = [self._attachments.number_of(each) for each in parameters]
        with self._lock, self._failing():
            for number in numbers:
                bucket = self._count(number, object(), not self._no_sync_depth)
                bucket.settle(self._views[number])
                bucket.note_complete()
            self._launch_in_order()

    def launch_ready(self) -> None:
        """Launch the buckets that are ready, from a hook that runs after the user's."""
        with self._lock:
            if not self._failure:
                with self._failing():
                    self._launch_in_order()

    def _launch_in_order(self, *, in_backward: bool = True) -> None:
        """Launch the ready buckets, up to the first one that is not ready.

        See Note [One launch order]. Two synchronizers may launch in another order on each rank
        in backward. A collective of one would then meet a collective of the other. Calls of
        `wait()` have one order on all ranks, so with a second synchronizer, buckets are
        launched there.
        """
        if in_backward and self._is_one_of_several:
            return
        for bucket in self.shared_buckets[self._num_launched :]:
            if bucket.state is not _READY:
                return
            bucket.launch()
            self._num_launched += 1

    @property
    def _is_one_of_several(self) -> bool:
        """Tell whether another bound synchronizer reduces on this rank, with any peers.

        Also without a common peer, ranks may wait in a circle. On a 2 x 2 mesh one
        synchronizer may reduce over rows and the other one over columns. If each rank
        launches in another order, each of the four collectives waits for the next one.
        """
        return any(other is not self for other in self._bound)

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
        """End the step with the gradients so far, and launch the remaining buckets."""
        with self._lock, self._failing():
            for bucket in self.buckets:
                bucket.flush()
            self._launch_in_order(in_backward=False)

    def scale(self, factor: float | torch.Tensor) -> None:
        """Multiply every gradient, reduced or local; the step is reduced."""
        for bucket in self.buckets:
            bucket.scale(factor)

    def finish(
        self, *, drop_unused: bool, scale: float | torch.Tensor | None = None
    ) -> None:
        """Launch the remaining buckets, and order the current stream after all of them.

        With `drop_unused`, `.grad` becomes None where no rank used the parameter.
        `scale` is None in a step that is reduced already.

        Raises:
            InFlightWriteError: A gradient was written since its launch; all is reduced.
        """
        was_reduced = self.is_reduced
        if not was_reduced:
            self.flush()
        names = {bucket: bucket.written_in_flight() for bucket in self.buckets}
        written = [bucket for bucket in self.buckets if names[bucket]]
        for bucket in self.buckets:
            self._complete(bucket, partial(bucket.finish, scale))
        if not was_reduced:
            for bucket in self.buckets:
                bucket.drop_scattered()
                if drop_unused:
                    bucket.drop_unused()
        # What overlaps: until here the current stream was free to compute. What orders
        # it: each side stream is ordered after its reductions, and now the current
        # stream waits for each side stream. On CPU the reductions are complete by now.
        for side in self._side_streams.values():
            side.release_to(side.current())
        if written:
            self.fail()
            raise InFlightWriteError(
                "a gradient was written while it was being reduced",
                expected="no write to .grad between the last backward and wait()",
                got="; ".join(names[bucket] for bucket in written),
                where=", ".join(bucket.label for bucket in written),
            )
        self.is_reduced = True

    @torch.no_grad()  # here, because it is slow for each gradient
    def restart(self, *, set_to_none: bool) -> None:
        """Start the next step with zeros, or None, in `.grad`; nothing is in flight."""
        for bucket in self.buckets:
            bucket.restart(set_to_none=set_to_none)
        self.is_reduced = False
        self.num_backwards = 0
        self._backward.close()
        self._number = None
        self._starts_as_none = set_to_none
        if self._collector:
            self._collector.stop()
        if self._observed is not None:
            self._observed.clear()
        self._num_launched = 0
        self._failure = ""

    def rebuild(self, plans: Iterable[BucketPlan]) -> None:
        """Move every gradient to other buckets, see Note [Effects of a rebuild].

        Where the new buffers cannot be allocated, the caller has to release.
        """
        learned = [view.expected_arrivals for view in self._views]
        hook_state = self.hook_state()
        # The old memory is freed before the new memory is allocated, for the peak.
        # `release` orders it after all its users. References to views go as well, because
        # each of them would keep the memory alive.
        for bucket in self.buckets:
            bucket.release()
        self._forget_buckets()
        self.plans = tuple(plans)
        self._allocate()
        for view, count in zip(self._views, learned, strict=True):
            view.expected_arrivals = count
        self.load_hook_state(hook_state)
        self.is_rebuilt = True

    @torch.no_grad()
    def hook_state(self) -> HookState:
        """Return copies of what comm hooks keep, by parameter."""
        found: HookState = {}
        for hook in self._hooks():
            found |= hook.state()
        return found

    @torch.no_grad()
    def load_hook_state(self, state: Mapping[str, Mapping[str, torch.Tensor]]) -> None:
        """Give comm hooks what `hook_state` has returned."""
        for hook in self._hooks():
            hook.load_state(state)

    def _hooks(self) -> list[HookTransport]:
        return [b.reduction.hook for b in self.buckets if b.reduction.hook]

    def release(self) -> None:
        """Remove all hooks, buffers, created groups and reductions in flight."""
        # Callbacks run last in, first out, and each runs even if another one fails. The
        # order is: hooks, reductions, memory, groups. So memory is freed when no hook and
        # no reduction can use it any more.
        with ExitStack() as stack:
            stack.callback(self._forget)
            stack.callback(self.groups.destroy)
            for bucket in self.buckets:
                stack.callback(bucket.release)
            for bucket in self.buckets:
                stack.callback(self._complete, bucket, bucket.abandon)
            stack.callback(self._attachments.remove_hooks)

    def leave_if_in_flight(self) -> None:
        """Drop all buckets if a reduction is in flight, and wait for none."""
        if not self.in_flight:
            return
        self._attachments.remove_hooks()
        for view in self._views:
            view.detach()
        # When may the memory be reused: reductions in flight write into it for as long as
        # peers let them, so never. Their process groups stay as well.
        _LEFT.append((*self.buckets, self.groups))
        self.groups = ReductionGroups()
        self.buckets.clear()

    def _forget(self) -> None:
        """Drop every view: the traceback of an error may keep this object alive."""
        self._bound.discard(self)
        self._forget_buckets()
        self._observed = None

    def _forget_buckets(self) -> None:
        for listed in (self.buckets, self.shared_buckets, self._bucket_of, self._views):
            listed.clear()
        self._place_views()

    @torch.inference_mode(mode=False)  # autograd cannot add to tensors of that mode
    def _allocate(self) -> None:
        """Make the buckets, and attach a view of them to every `.grad`."""
        last = max((plan.index for plan in self.plans if plan.scope), default=None)
        for plan in self.plans:
            device = plan.key.device
            if device.type == "meta":
                raise InvalidArgumentError(
                    f"{plan.members[0].name} has no memory",
                    expected="parameters on a device, as to_empty() gives them",
                    got="a parameter on the meta device",
                )
            if device not in self._side_streams:
                self._side_streams[device] = SideStream(device)
            bucket = Bucket(
                plan,
                side=self._side_streams[device],
                groups=self.groups,
                require_accumulations=self.require_accumulations,
                config=self._config,
                is_last=plan.index == last,
            )
            self.buckets.append(bucket)
        self.shared_buckets += [each for each in self.buckets if each.plan.scope]
        self._attachments.attach_views(self.buckets)
        self._place_views()

    def _place_views(self) -> None:
        if self._collector:
            index = {id(bucket): n for n, bucket in enumerate(self.buckets)}
            self._collector.set_places(
                [index[id(bucket)] for bucket in self._bucket_of],
                [view.local for view in self._views],
                [view.gradient for view in self._views],
            )

    @contextmanager
    def _failing(self) -> Iterator[None]:
        """Mark the step as failed where the block raises."""
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
                got=f"{type(error).__name__}: {error}",
                where=bucket.label,
            ) from error


# Sequences that reduce with other ranks. Each rank of a job has a default process group of its
# own, also where ranks are threads.
_bound: WeakKeyDictionary[dist.ProcessGroup, WeakSet[BucketSequence]] = (
    WeakKeyDictionary()
)


def _counting(sequence: weakref.ref[BucketSequence]) -> Callable[[int], None]:
    """Return what the hook in C++ calls; parameters outlive synchronizers."""

    def count(number: int) -> None:
        known = sequence()
        if known is not None:
            known.count_collected()
            known.note_accumulation(number)

    return count
