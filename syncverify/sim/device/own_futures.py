"""Futures that a program makes and completes by itself, for its tensors on a GPU.

`torch.futures.Future(devices=[...])` is the form that a communication hook of
DistributedDataParallel needs where it completes the future. `set_result()` records an event on the
current stream. `wait()` orders the current stream after it, and a callback runs on a stream of its
own, which waits for it too. Without `devices`, torch records no event and orders nothing.

Source:
    aten/src/ATen/core/ivalue_inl.h, `Future::markCompleted`, `synchronizeWithCurrentDevices` and
    `invokeCallback`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

import torch
from typing_extensions import override

from syncverify.sim.device.futures import LazyFuture
from syncverify.sim.device.streams import RankStreams, own_streams
from syncverify.sim.turns.refusals import refuse


class _ResultOfProgram:
    """A result that the program sets, on its current stream."""

    def __init__(self, streams: RankStreams) -> None:
        self._streams = streams
        self._mark: int | None = None
        self._waiting: list[Callable[[], None]] = []

    def set(self) -> None:
        """Note that the result is set on the current stream, and run what waits for it."""
        self._mark = self._streams.mark(self._streams.current())
        while self._waiting:
            self._waiting.pop(0)()

    def settle(self) -> None:
        """Run the callbacks of other futures until one of them sets the result."""
        self.settle_in_turn()
        if self._mark is None:
            refuse("a wait for a future that has no result yet")

    def settle_in_turn(self) -> None:
        """Run the callbacks of other futures until one of them sets the result."""
        while self._mark is None and self._streams.callbacks:
            before = len(self._streams.callbacks)
            first: Any = self._streams.callbacks[0]
            first.settle_in_turn()
            if len(self._streams.callbacks) == before:
                return  # it waits for this result

    def order(self) -> None:
        """Order the current stream after the one on which the result was set."""
        if self._mark is not None:
            self._streams.wait(self._streams.current(), self._mark)

    def when_settled(self, run: Callable[[], None]) -> None:
        """Call a function when the result is set."""
        if self._mark is None:
            self._waiting.append(run)
        else:
            run()


class OwnFuture(LazyFuture):
    """A future that the program completes, with the devices of its result.

    Args:
        devices: Devices of the result; a rank has one.
    """

    def __init__(self, *, devices: Iterable[Any] | None = None) -> None:
        del devices
        streams = own_streams()
        assert streams is not None, "made on the thread of a rank"
        self._result = _ResultOfProgram(streams)
        super().__init__(streams, self._result)

    @override
    def done(self) -> bool:
        """Tell whether the program has completed it."""
        return torch.futures.Future.done(self)

    @override
    def set_result(self, result: Any) -> None:
        super().set_result(result)
        self._result.set()

    @override
    def set_exception(self, result: Any) -> None:
        super().set_exception(result)
        self._result.set()


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
