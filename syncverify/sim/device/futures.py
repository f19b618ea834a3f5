"""Futures of collectives with CUDA's semantics: done at once, and in order only after a wait.

torch completes the future of an NCCL collective when the collective is queued, and that of
`nccl2` at its creation, after the current stream has been ordered. `wait()` orders the current
stream after the collective, and `then()` runs its callback on a stream from a pool.

Here the callback runs when the collective's result is in memory. A host sees no difference from
an earlier moment, unless it waits for an effect of the callback: `sim` refuses to judge that.
C++ code, such as the reducer of DistributedDataParallel, waits where no rank can give its turn
away, so its futures have their result from the start.

Source:
    torch/csrc/distributed/c10d/ProcessGroupNCCL.cpp, `WorkNCCL::getFuture`;
    torch/csrc/distributed/c10d/nccl2/WorkNCCL.cpp, the function of that name;
    aten/src/ATen/core/ivalue_inl.h, `Future::synchronizeWithCurrentDevices`.
"""

from collections.abc import Callable, Iterable, Sequence
from typing import Any, Protocol

import torch
from typing_extensions import override

from syncverify.sim.device.streams import RankStreams, own_streams
from syncverify.sim.turns.refusals import refuse

Callback = Callable[[Any], Any]


class FutureSource(Protocol):
    """The origin of a future's result."""

    def settle(self) -> None:
        """Block this rank until the result is in memory; that of a collective raises its error."""

    def settle_in_turn(self) -> None:
        """Block this rank until the result is in memory, or known to fail."""

    def order(self) -> None:
        """Order the current stream after the result."""

    def when_settled(self, run: Callable[[], None]) -> None:
        """Call a function when the result is in memory."""


class Marked(FutureSource):
    """A result that comes with that of `before`, and a mark after it once it is there."""

    def __init__(self, streams: RankStreams, before: FutureSource) -> None:
        self._streams = streams
        self._before = before
        self._mark: int | None = None
        self._waiting: list[Callable[[], None]] = []

    def put_mark(self) -> None:
        """Note that the result is there, on the current stream."""
        self._mark = self._streams.mark(self._streams.current())

    def run_waiting(self) -> None:
        """Call the functions that wait for the result."""
        while self._waiting:
            self._waiting.pop(0)()

    @override
    def settle(self) -> None:
        self.settle_in_turn()

    @override
    def settle_in_turn(self) -> None:
        self._before.settle_in_turn()

    @override
    def order(self) -> None:
        if self._mark is not None:
            self._streams.wait(self._streams.current(), self._mark)

    @override
    def when_settled(self, run: Callable[[], None]) -> None:
        if self._mark is None:
            self._waiting.append(run)
        else:
            run()


class OrderedSource(Marked):
    """A result after which the current stream is ordered already.

    Future of `nccl2`: it is completed on the current stream, which waits for the collective
    first. So a callback also comes after all that this stream did before.
    """

    def __init__(self, streams: RankStreams, origin: FutureSource) -> None:
        super().__init__(streams, origin)
        self.put_mark()

    @override
    def settle(self) -> None:
        self._before.settle()

    @override
    def when_settled(self, run: Callable[[], None]) -> None:
        self._before.when_settled(run)


class LazyFuture(torch.futures.Future[Any]):
    """A future of one rank that orders nothing before it is waited for."""

    def __init__(self, streams: RankStreams, source: FutureSource) -> None:
        super().__init__()
        self._streams = streams
        self._source = source

    @override
    def done(self) -> bool:
        """Return True: CUDA's futures are done when their work is queued."""
        return True

    @override
    def wait(self) -> Any:
        """Order the current stream after the result, and return the result."""
        self._source.settle()
        self.order()
        return super().value()

    def order(self) -> None:
        """Order the current stream after the result, which is in memory."""
        self._source.order()

    @override
    def value(self) -> Any:
        """Return the result; nothing orders its use."""
        self._source.settle()
        return super().value()

    @override
    def then(self, callback: Callback) -> "LazyFuture":
        """Return the future of a callback, which runs on a stream of its own after the result.

        A callback hears of a collective that failed from `value()` alone.
        """
        called = _CallbackResult(self._streams, self._source)
        self._streams.callbacks.append(called)
        future = LazyFuture(self._streams, called)
        self._source.when_settled(lambda: called.run(future, lambda: callback(self)))
        return future

    @override
    def add_done_callback(self, callback: Callback) -> None:
        self.then(callback)


class _CallbackResult(Marked):
    """The result of a callback, which runs after another result."""

    def run(self, future: LazyFuture, callback: Callable[[], Any]) -> None:
        """Run the callback on a new stream, and the callbacks of its own future."""
        self._streams.callbacks.remove(self)
        stream = self._streams.new_callback_stream()
        # No other stream orders the new one. It waits for the result, then the callback runs, and
        # a stream that waits for the mark is ordered after the callback.
        with self._streams.keeping_inputs() as self._kept, stream:
            self._before.order()
            try:
                future.set_result(callback())
            except Exception as error:  # noqa: BLE001  # raised again by `wait` and `value`
                future.set_exception(error)
            self.put_mark()
        self.run_waiting()

    @override
    def order(self) -> None:
        super().order()
        if self._mark is not None:
            kept, self._kept = self._kept, []
            for let_go in kept:
                self._streams.let_go_of_inputs(let_go)


class _Settled(FutureSource):
    """A result in memory, after which a stream can be ordered by several orders."""

    def __init__(self, orders: Sequence[Callable[[], None]] = ()) -> None:
        self._orders = orders

    @override
    def settle_in_turn(self) -> None:
        """Do nothing: the result is in memory."""

    settle = settle_in_turn

    @override
    def order(self) -> None:
        for order in self._orders:
            order()

    @override
    def when_settled(self, run: Callable[[], None]) -> None:
        run()


def collect_all(
    original: Callable[..., torch.futures.Future[Any]],
    streams: RankStreams,
    futures: Sequence[torch.futures.Future[Any]],
) -> torch.futures.Future[Any]:
    """Return a future of all futures, as `torch.futures.collect_all` does.

    A wait for it orders nothing: its value is the list of futures, without a device. A callback
    of it runs on the current stream.

    Source:
        `collectAll` in aten/src/ATen/core/ivalue.cpp: "No need to pass devices".
    """
    if not any(isinstance(each, LazyFuture) for each in futures):
        return original(futures)  # the caller's own, which are done when it says so
    future = torch.futures.Future[Any]()
    future.set_result(list(futures))
    return future


def register_comm_hook(
    original: Callable[..., None],
    streams: RankStreams,
    reducer: Any,
    state: Any,
    hook: Callable[[Any, Any], torch.futures.Future[Any]],
) -> None:
    """Register a hook of DistributedDataParallel, whose reducer waits in C++."""

    def settled(state: Any, bucket: Any) -> torch.futures.Future[Any]:
        future = hook(state, bucket)
        if isinstance(future, LazyFuture):
            future.value()  # in memory before C++ code waits; raises the error of a callback
            streams.reducers.order(future.order)
        return future

    original(reducer, state, settled)


def run_allreduce_hook(
    original: Callable[..., torch.futures.Future[Any]],
    streams: RankStreams,
    reducer: Any,
    bucket: Any,
) -> LazyFuture:
    """Sum a bucket of DistributedDataParallel for a hook; a wait orders the waiting stream."""
    with streams.reducers.asked_by_hook() as orders:
        future = original(reducer, bucket)
    summed = LazyFuture(streams, _Settled(orders))
    summed.set_result(future.value())
    return summed


class _ResultOfProgram(Marked):
    """A result that the program sets, on its current stream."""

    @override
    def settle(self) -> None:
        super().settle()
        if self._mark is None:
            refuse("a wait for a future that has no result yet")

    @override
    def settle_in_turn(self) -> None:
        """Run the callbacks of other futures until one of them sets the result."""
        while self._mark is None and self._streams.callbacks:
            before = len(self._streams.callbacks)
            first: Any = self._streams.callbacks[0]
            first.settle_in_turn()
            if len(self._streams.callbacks) == before:
                return  # it waits for this result


class OwnFuture(LazyFuture):
    """A future that the program makes and completes by itself, for its tensors on a GPU.

    `torch.futures.Future(devices=[...])` is the form that a communication hook of
    DistributedDataParallel needs where it completes the future. `set_result()` records an event on
    the current stream. `wait()` orders the current stream after it, and a callback runs on a stream
    of its own, which waits for it too. Without `devices`, torch records no event and orders nothing.

    Source:
        aten/src/ATen/core/ivalue_inl.h, `Future::markCompleted`, `synchronizeWithCurrentDevices`
        and `invokeCallback`.
    """

    def __init__(self, *, devices: Iterable[Any] | None = None) -> None:
        del devices
        streams = own_streams()
        assert streams is not None, "made on the thread of a rank"
        self._result = _ResultOfProgram(streams, _Settled())
        super().__init__(streams, self._result)

    @override
    def done(self) -> bool:
        return torch.futures.Future.done(self)

    @override
    def set_result(self, result: Any) -> None:
        super().set_result(result)
        self._result.put_mark()
        self._result.run_waiting()

    @override
    def set_exception(self, result: Any) -> None:
        super().set_exception(result)
        self._result.put_mark()
        self._result.run_waiting()


def new_future(
    original: Callable[..., Any],
    _: RankStreams,
    cls: type,
    *args: Any,
    devices: Iterable[Any] | None = None,
    **kwargs: Any,
) -> Any:
    """Make a future; one with GPUs as its devices is of the rank's streams."""
    has_gpu = any(
        isinstance(e, int) or torch.device(e).type == "cuda" for e in devices or ()
    )
    if cls is torch.futures.Future and has_gpu:
        return original(OwnFuture)
    return original(cls, *args, **kwargs)
