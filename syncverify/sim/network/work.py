"""Handles of simulated collectives: results arrive when they are waited for.

Note [Dropped handles]
    A program may drop the handle of a collective without a wait, and the results too. The
    legacy implementation of NCCL holds inputs and results until the collective is done. That
    of `nccl2` holds the inputs; since torch 2.15 the handle alone holds the results. Their memory
    goes back to its pool with the handle, and the collective writes to it all the same.

    So the caller gets a handle of its own there, and when it is dropped the work knows its
    results weakly. It writes to those that are held by others.

Source:
    torch/csrc/distributed/c10d/nccl2/WorkNCCL.hpp, `TrackedWork` and `outputs_`.
"""

# torch's stubs overload these methods for call styles that no caller uses here.
# mypy: disable-error-code="override, assignment"

import dataclasses
import sys
import weakref
from collections import Counter
from collections.abc import Callable, Sequence
from datetime import timedelta
from itertools import compress
from types import CodeType
from typing import Any, Protocol

import torch
import torch.distributed as dist
from typing_extensions import override

from syncverify.sim.device.futures import FutureSource, LazyFuture, OrderedSource
from syncverify.sim.device.nccl_names import Promises
from syncverify.sim.device.streams import own_streams
from syncverify.sim.network.collectives import CollectiveCall, Tensors, compute, deliver
from syncverify.sim.network.rendezvous import Rendezvous, SimulatedWorld
from syncverify.sim.turns.own_errors import noting_own_errors
from syncverify.sim.turns.refusals import refusal, refusing_rest
from syncverify.sim.turns.stalls import Wait
from syncverify.trace.recorder import Recorder
from syncverify.trace.records import CollectiveLaunch
from syncverify.trace.regions import MemoryRegion, has_memory, tensor_region
from syncverify.trace.source_files import calls_by_name
from syncverify.trace.source_lines import Origin
from syncverify.trace.sync_points import is_ignored


class Results:
    """The tensors that a collective writes, in order: kept alive until `let_go()`."""

    def __init__(self, tensors: Tensors) -> None:
        self.kept = tensors
        self._let_go = list[Callable[[], torch.Tensor | None]]()

    def let_go(self) -> None:
        """Keep none of the tensors alive; see Note [Dropped handles]."""
        self._let_go = [_held_by_others(each) for each in self.kept]
        self.kept = []

    def living(self) -> Tensors:
        """List the tensors whose memory is still there."""
        found = (find() for find in self._let_go)
        return [*self.kept, *(each for each in found if each is not None)]

    def write(self, values: Tensors) -> None:
        """Write a value to each tensor whose memory is still there."""
        there = [has_memory(each) for each in self.kept]
        deliver([*compress(values, there)], [*compress(self.kept, there)])
        for find, value in zip(self._let_go, values, strict=False):
            tensor = find()
            if tensor is not None and has_memory(tensor):
                deliver([value], [tensor])


def _held_by_others(tensor: torch.Tensor) -> Callable[[], torch.Tensor | None]:
    """Return a function that gives a tensor again, or None once its memory is gone."""
    storage, dtype = weakref.ref(tensor.untyped_storage()), tensor.dtype
    layout = int(tensor.storage_offset()), tensor.size(), tensor.stride()

    def found() -> torch.Tensor | None:
        living = storage()
        if living is None:
            return None
        return torch.empty(0, dtype=dtype).set_(living, *layout)

    return found


def without_memory(tensors: Tensors) -> Tensors:
    """Return tensors of the same dtypes and sizes without memory."""
    return [torch.empty_like(each, device="meta") for each in tensors]


class IssuingCommunicator(Protocol):
    """The communicator that issued a collective, as the collective's handle uses it."""

    # By communicator and ranks: how many collectives the host knows to be complete.
    num_seen_complete: Counter[tuple[str, tuple[int, ...]]]

    world: SimulatedWorld

    @property
    def is_of_nccl(self) -> bool:
        """Tell whether the subject sees a communicator of NCCL."""

    @property
    def promises(self) -> Promises:
        """The promises of the library that the subject sees."""

    @property
    def recorder(self) -> Recorder:
        """Recorder of the rank that holds the handle."""

    def is_held_back(self, work: "SimulatedWork") -> bool:
        """Tell whether a call belongs to a block that has not ended yet."""

    def take_completed_before(self, work: "SimulatedWork") -> Sequence["SimulatedWork"]:
        """Take a work and those complete before it out of the queue; return the latter."""


# Answers of torch's base class that fit each handle.
_INHERITED = frozenset({"_pybind11_conduit_v1_", "boxed", "unbox"})
refusing_rest_of_work = refusing_rest(dist.Work, _INHERITED)


@refusing_rest_of_work
@noting_own_errors("wait", "is_completed", "result")
class SimulatedWork(dist.Work):
    """Handle of a simulated collective; results arrive when it is waited for."""

    def __init__(
        self,
        group: IssuingCommunicator,
        rendezvous: Rendezvous,
        seat: int,
        call: CollectiveCall,
        launched: CollectiveLaunch,
    ) -> None:
        super().__init__()
        self._group = group
        self._rendezvous = rendezvous
        self._seat = seat
        self._launched = launched
        self._delivered = False
        self._results = Results(call.outputs)
        # NCCL's work holds its tensors since torch 2.8, in place of `record_stream`: their
        # memory may be reused only after a stream waits for the work.
        self._held = call.inputs
        self._callbacks: list[Callable[[], None]] = []
        self._streams = own_streams()
        if self._streams is not None:
            self._streams.in_flight.append(self)

    @property
    def launched_at(self) -> Origin:
        """Line of the subject that issued the collective."""
        return self._launched.source

    @override
    def wait(self, timeout: timedelta | None = None) -> bool:
        """Return True once all ranks arrived; order the current stream at each call.

        Raises:
            dist.DistBackendError: The collective has failed.
        """
        if self._is_awaited():
            if timeout:  # NCCL then blocks the host as well; no time passes here
                self._group.recorder.wait_on_host(self._launched)
            elif self._launched.operation == "barrier":
                self._group.recorder.wait_for_barrier(self._launched)
        return True

    def _is_awaited(self) -> bool:
        """Order the current stream after the collective, and tell whether the call does so."""
        if self._group.is_held_back(self) or is_ignored("work_wait"):
            return False
        self.settle_in_turn()
        self.order()
        self._check()
        return True

    @override
    def block_current_stream(self) -> None:
        """Order the current stream after the collective; the host waits for nothing."""
        self._is_awaited()

    synchronize = block_current_stream

    @override
    def is_completed(self) -> bool:
        """Let other ranks run, then tell whether the work is done, as far as the host sees."""
        if not self._delivered and self._shows():
            self._settle_earlier()
            self._complete(self._deliver)
            self.order()
            self._group.recorder.wait_on_host(self._launched)
        return self._delivered

    def _shows(self) -> bool:
        # The answer may be "not yet" although all ranks have arrived. But a communicator
        # completes in order: a host that knows a later collective to be complete knows this
        # one to be complete too.
        if self._group.world.scheduler.hides(self._rendezvous.name):
            return False
        seen = self._group.num_seen_complete
        communicator, ranks, sequence = self._launched.key
        meetings = communicator, ranks
        if sequence >= seen[meetings] and not self._group.world.scheduler.poll(
            "is_completed", self._described(), lambda: self._rendezvous.is_complete
        ):
            return False
        seen[meetings] = max(seen[meetings], sequence + 1)
        return True

    @override
    def is_success(self) -> bool:
        return self._delivered and not self._rendezvous.fails

    @override
    def exception(self) -> Exception | None:
        """Return the reason that the collective failed, as far as the host sees; else None."""
        return self._failure() if self._delivered and self._rendezvous.fails else None

    @override
    def result(self) -> list[torch.Tensor]:
        """Return the results; NCCL orders nothing here, and gloo requires a wait before."""
        if not self._group.is_of_nccl:
            self.wait()
        return self._results.kept

    @override
    def get_future(self) -> torch.futures.Future[list[torch.Tensor]]:
        """Return a future, which has its result for C++ code."""
        caller = sys._getframe(1).f_code  # documented by Python
        return self.future_of(self, caller)

    def future_of(
        self, handle: FutureSource, caller: CodeType
    ) -> torch.futures.Future[list[torch.Tensor]]:
        """Return a future that holds a handle of this work, for a function that asks."""
        if self._streams is None:
            self.wait()
            return self._completed_future()
        if not calls_by_name(caller, "get_future"):
            if not (self._group.is_held_back(self) or is_ignored("work_wait")):
                self.settle()
                if self._orders_by_future():
                    self.order()
                else:
                    self._streams.reducers.order(self.order)
            return self._completed_future()
        if self._orders_by_future():
            self.settle_in_turn()
            self.order()
            handle = OrderedSource(self._streams, handle)
        future = LazyFuture(self._streams, handle)
        self.when_settled(lambda: future.set_result(self._results.kept))
        return future

    def _completed_future(self) -> torch.futures.Future[list[torch.Tensor]]:
        future = torch.futures.Future[list[torch.Tensor]]()
        future.set_result(self._results.kept)
        return future

    def _orders_by_future(self) -> bool:
        is_held_back = self._group.is_held_back(self)
        return self._group.promises.orders_by_future and not is_held_back

    def let_go_of_results(self) -> None:
        """Keep no result alive; see Note [Dropped handles]."""
        call = self._rendezvous.calls[self._seat]
        if call is not None and not self._delivered:
            with self._group.recorder.not_recording_accesses():
                stand_ins = without_memory(call.outputs)
            replaced = dataclasses.replace(call, outputs=stand_ins)
            self._rendezvous.calls[self._seat] = replaced
        self._results.let_go()

    # torch would raise an error that reads like the subject's own.
    _get_duration: Any = refusal("the duration of a collective")
    get_future_result: Any = refusal("a future that tells how a collective ended")

    def settle(self) -> None:
        """Block this rank until the results are in memory; no stream is ordered after them.

        Raises:
            dist.DistBackendError: The collective has failed.
        """
        self.settle_in_turn()
        self._check()

    def settle_in_turn(self) -> None:
        """Block this rank until the results, and all earlier ones, are in memory.

        A collective that failed raises where its own work is waited for.
        """
        self._settle_earlier()
        if not self._delivered:
            self._complete(self._await_and_deliver)

    def _settle_earlier(self) -> None:
        for earlier in self._group.take_completed_before(self):
            earlier.settle_in_turn()

    @property
    def runs_on(self) -> str:
        """Name of the stream on which the collective runs."""
        return self._launched.runs_on

    def writes_any_of(self, tensors: Tensors) -> bool:
        """Tell whether a result and any of the tensors have a byte in common."""
        written = [_bytes_of(output) for output in self._results.living()]
        return any(_bytes_of(each).overlaps(one) for each in tensors for one in written)

    def order(self) -> None:
        """Order the current stream after the collective, and let go of its inputs."""
        self._group.recorder.wait(self._launched)
        if self._streams is None:
            self._held = []
        else:
            self._streams.let_go_of_inputs(self._let_go_of_inputs)

    def _let_go_of_inputs(self) -> None:
        if self._streams is not None and self in self._streams.in_flight:
            self._streams.in_flight.remove(self)
        self._held = []

    def when_settled(self, run: Callable[[], None]) -> None:
        """Call a function when the results are in memory."""
        if self._delivered:
            run()
        else:
            self._callbacks.append(run)

    def _complete(self, deliver: Callable[[], None]) -> None:
        self._group.recorder.end(self._launched, deliver)
        self._delivered = True
        while self._callbacks:
            self._callbacks.pop(0)()

    def _await_and_deliver(self) -> None:
        self._group.world.scheduler.block_until(
            lambda: self._rendezvous.is_complete, self._described()
        )
        if self._rendezvous.is_complete:  # or else the host goes on without the results
            self._deliver()

    def _described(self) -> Wait:
        """Return the wait for the collective in words, for the report of a stall."""
        launched = self._launched
        held = f" of {', '.join(launched.parameters)}" if launched.parameters else ""
        operation = (
            f"{launched.operation} #{launched.sequence}{held} over ranks "
            f"{list(launched.ranks)}, on stream {launched.stream}, at {launched.source}"
        )
        missing, name = self._rendezvous.missing_ranks, self._rendezvous.name
        # NCCL's barrier blocks the host.
        is_of_stream = launched.operation != "barrier" and self._group.is_of_nccl
        return Wait(operation, missing, name, launched.source, is_of_stream)

    def _check(self) -> None:
        if self._rendezvous.fails:
            raise self._failure()

    def _failure(self) -> Exception:
        launched = self._launched
        return dist.DistBackendError(
            f"{launched.operation} #{launched.sequence} over ranks {list(launched.ranks)} "
            "failed: the connection to a peer was lost"
        )

    def _deliver(self) -> None:
        if self._rendezvous.fails:
            return
        delivered = [call for call in self._rendezvous.calls if call is not None]
        with self._group.recorder.delivering(self._launched):
            self._results.write(compute(delivered, self._seat))
        # The rendezvous lives as long as the run, and must not keep the outputs alive.
        self._rendezvous.forget(self._seat)


def _bytes_of(tensor: torch.Tensor) -> MemoryRegion:
    # Two storages may lie over the same bytes.
    return tensor_region(tensor, 0, tensor.untyped_storage().data_ptr())


@refusing_rest_of_work
class CoalescedWork(dist.Work):
    """Handle of several collectives that were issued as one; without any, it is done at once."""

    def __init__(self, works: Sequence[SimulatedWork]) -> None:
        super().__init__()
        self._works = works

    @override
    def wait(self, timeout: timedelta | None = None) -> bool:
        return all(work.wait() for work in self._works)

    @override
    def is_completed(self) -> bool:
        return all(work.is_completed() for work in self._works)

    @override
    def is_success(self) -> bool:
        return all(work.is_success() for work in self._works)

    synchronize: Any = wait
    block_current_stream: Any = wait


def _passed_on(name: str) -> Any:
    """Return a method that calls the method of a name on the machine's own handle."""

    def call(handle: "DroppableHandle", *given: Any, **named: Any) -> Any:
        return getattr(handle.work, name)(*given, **named)

    return call


@refusing_rest_of_work
class DroppableHandle(dist.Work):
    """A handle that lets go of the results as it is dropped; see Note [Dropped handles].

    The machine's own handle `work` is waited for in the place of this one.
    """

    def __init__(self, work: SimulatedWork) -> None:
        super().__init__()
        self.work = work

    def __del__(self) -> None:
        self.work.let_go_of_results()

    @property
    def launched_at(self) -> Origin:
        """Line of the subject that issued the collective."""
        return self.work.launched_at

    @override
    def get_future(self) -> torch.futures.Future[list[torch.Tensor]]:
        """Return a future, which holds this handle and so the results."""
        return self.work.future_of(self, sys._getframe(1).f_code)

    wait: Any = _passed_on("wait")
    block_current_stream: Any = _passed_on("block_current_stream")
    is_completed: Any = _passed_on("is_completed")
    is_success: Any = _passed_on("is_success")
    exception: Any = _passed_on("exception")
    synchronize: Any = _passed_on("synchronize")
    result: Any = _passed_on("result")
    settle: Any = _passed_on("settle")
    settle_in_turn: Any = _passed_on("settle_in_turn")
    order: Any = _passed_on("order")
    when_settled: Any = _passed_on("when_settled")
    _get_duration: Any = SimulatedWork._get_duration  # noqa: SLF001  # refused alike
    get_future_result: Any = SimulatedWork.get_future_result
