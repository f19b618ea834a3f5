"""Virtual streams and events, with CUDA's semantics and no device.

Operators run at once, on the host. A virtual stream stands for the order in which a device
might have run them: it records the work that is queued on it, and the marks that it waits
for. Work on two streams may overlap unless a chain of such waits orders it.

Streams have names, given in order of creation on each rank. Priorities are kept and mean
nothing: they never order work. Streams do not wait for the default stream by themselves,
as torch's never do.
"""

from __future__ import annotations

import itertools
import threading
from typing import Any, NoReturn

import torch
from typing_extensions import override

from syncverify.sim.turns import refusals
from syncverify.sim.turns.own_errors import noting_own_errors
from syncverify.trace.records import DEFAULT_STREAM
from syncverify.trace.source_lines import Origin
from syncverify.trace.sync_points import is_ignored

_STREAMS = (torch.cuda.Stream, torch.Stream)
_EVENTS = (torch.cuda.Event, torch.Event)


class StreamQueues:
    """The streams of one rank, on all of its threads.

    Here every operator has run when the next line runs, so all orders hold already: marks and waits
    do nothing.
    """

    seen: Any = None  # device that the subject sees in the place of torch's

    def __init__(self) -> None:
        # Current at first, on every thread.
        self.default = VirtualStream(self, DEFAULT_STREAM)
        self._numbers = {self.default.name: 0}
        self._stream_numbers = itertools.count(1)
        self._num_marks = 0
        self._thread = threading.local()

    def create(self, device: Any = None, priority: int = 0) -> VirtualStream:
        """Make a stream."""
        device = self.default.device if device is None else device
        name = f"stream {next(self._stream_numbers)}"
        stream = VirtualStream(self, name, device, priority)
        self._numbers[stream.name] = len(self._numbers)
        return stream

    def number_of(self, stream: VirtualStream) -> int:
        """Return the position of a stream in order of creation."""
        return self._numbers[stream.name]

    def current(self) -> VirtualStream:
        """Return the stream on which the calling thread queues work."""
        stream: VirtualStream = getattr(self._thread, "current", self.default)
        return stream

    def set_current(self, stream: VirtualStream) -> None:
        """Make a stream current on the calling thread."""
        self._thread.current = stream

    def push(self, stream: VirtualStream) -> None:
        """Make a stream current until `pop`."""
        self._previous().append(self.current())
        self.set_current(stream)

    def pop(self) -> None:
        """Make the stream current that was current before the matching `push`."""
        self.set_current(self._previous().pop())

    def _previous(self) -> list[VirtualStream]:
        previous: list[VirtualStream] = self._thread.__dict__.setdefault("previous", [])
        return previous

    def mark(self, stream: VirtualStream, origin: Origin | None = None) -> int:
        """Put a mark after the work that a stream holds now, and return its number."""
        self._num_marks += 1
        return self._num_marks

    def wait(
        self, stream: VirtualStream, mark: int, origin: Origin | None = None
    ) -> None:
        """Let a stream wait for a mark; `origin` is None for a call of the subject."""

    def wait_on_host(self, mark: int, *, is_asked_for: bool = False) -> None:
        """Let the host wait for a mark, by a call of the subject or to read a value."""

    def synchronize(self) -> None:
        """Let the host wait for the work on all streams, collectives included."""

    def is_done(self, mark: int) -> bool:
        """Tell whether the device has passed a mark, as far as it shows."""
        return True

    def is_idle(self, stream: VirtualStream) -> bool:
        """Tell whether a stream is done, as far as it shows."""
        return True

    def record_consumer(self, tensor: torch.Tensor, stream: VirtualStream) -> None:
        """Defer the reuse of a gradient's memory until the stream of its consumer is done."""


@noting_own_errors()
class VirtualStream:
    """A queue of one rank; objects of the same queue are equal and hash-equal.

    The name is unique on the rank. The priority is the one that the caller named.
    """

    def __init__(
        self, streams: StreamQueues, name: str, device: Any = None, priority: int = 0
    ) -> None:
        self._streams = streams
        self.name = name
        self.device = named_device(device)
        self.priority = priority

    def wait_stream(self, stream: VirtualStream) -> None:
        """Order later work on this stream after the work that another stream holds now."""
        self._streams.wait(self, self._streams.mark(own_stream(stream)))

    def wait_event(self, event: VirtualEvent) -> None:
        """Order later work on this stream after an event."""
        own_event(event).wait(self)

    def record_event(self, event: VirtualEvent | None = None) -> VirtualEvent:
        """Record an event on this stream, a new one if none is given."""
        event = VirtualEvent(self._streams) if event is None else own_event(event)
        event.record(self)
        return event

    def synchronize(self) -> None:
        """Let the host wait for the work that this stream holds now."""
        self._streams.wait_on_host(self._streams.mark(self), is_asked_for=True)

    def query(self) -> bool:
        """Tell whether the stream has no work left."""
        return self._streams.is_idle(self)

    @property
    def stream_id(self) -> int:
        """Number of the stream on its rank, 0 for the default stream."""
        return self._streams.number_of(self)

    cuda_stream = native_handle = stream_id

    @property
    def device_index(self) -> int:
        """Number of the device; a rank has one device."""
        return self.device.index or 0

    @property
    def device_type(self) -> int:
        """Number that torch gives to the type of the device."""
        return int(getattr(torch.autograd.DeviceType, self.device.type.upper()).value)

    def is_capturing(self) -> bool:
        """Return False: no graph is captured."""
        return False

    @staticmethod
    def priority_range() -> tuple[int, int]:
        """Return the least and the greatest priority, as CUDA counts them."""
        return 0, -1

    @override
    def __eq__(self, other: object) -> bool:
        if self is other or not isinstance(other, VirtualStream):
            return self is other
        return other._streams is self._streams and other.name == self.name

    @override
    def __hash__(self) -> int:
        return hash(self.stream_id)

    @override
    def __repr__(self) -> str:
        return f"<{self.name}>"

    def __getattr__(self, name: str) -> NoReturn:
        refusals.refuse_missing(name, *_STREAMS)

    def __enter__(self) -> VirtualStream:
        self._streams.push(self)
        return self

    def __exit__(self, *_: object) -> None:
        self._streams.pop()


@noting_own_errors()
class VirtualEvent:
    """A CUDA event: a mark in a stream, which may be recorded again."""

    def __init__(self, streams: StreamQueues, *, enable_timing: bool = False) -> None:
        self._streams = streams
        self._enable_timing = enable_timing
        self._mark: int | None = None
        self.device = streams.default.device

    def record(self, stream: VirtualStream | None = None) -> None:
        """Put the mark after the work that a stream holds now; default: the current stream."""
        if not is_ignored("event"):
            self._mark = self._streams.mark(self._own_or_current(stream))

    def wait(self, stream: VirtualStream | None = None) -> None:
        """Let a stream wait for the event; an event that was never recorded orders nothing."""
        if self._mark is not None:
            self._streams.wait(self._own_or_current(stream), self._mark)

    def _own_or_current(self, stream: VirtualStream | None) -> VirtualStream:
        return self._streams.current() if stream is None else own_stream(stream)

    def synchronize(self) -> None:
        """Let the host wait for the event."""
        if self._mark is not None:
            self._streams.wait_on_host(self._mark, is_asked_for=True)

    def query(self) -> bool:
        """Tell whether the device has passed the mark."""
        return self._mark is None or self._streams.is_done(self._mark)

    # A torch without CUDA lacks it.
    cuda_event = refusals.RefusedAttribute("Event.cuda_event")
    ipc_handle: Any = refusals.refusal("events of other processes")
    from_ipc_handle: Any = refusals.refusal("events of other processes")

    def elapsed_time(self, end_event: VirtualEvent) -> float:
        """Return a made-up time in ms: there is no clock, but marks are in host order.

        Raises:
            ValueError: One of the events has no time, as in torch.
            RuntimeError: The device has not reached one of them, as far as the host can see.

        Source:
            torch's CUDAEvent.h, `elapsed_time`, the same in 2.13 to 2.15.
        """
        own_event(end_event)
        if not (self._enable_timing and end_event._enable_timing):
            raise ValueError(
                "Both events must be created with argument 'enable_timing=True'."
            )
        if self._mark is None or end_event._mark is None:
            raise ValueError(
                "Both events must be recorded before calculating elapsed time."
            )
        if not (self.query() and end_event.query()):
            raise RuntimeError(
                "Both events must be completed before calculating elapsed time."
            )
        return float(end_event._mark - self._mark)

    def __getattr__(self, name: str) -> NoReturn:
        refusals.refuse_missing(name, *_EVENTS)


def own_stream(given: object) -> VirtualStream:
    """Return an argument that has to be a stream of the run."""
    return given if isinstance(given, VirtualStream) else _refuse_other(given, "stream")


def own_event(given: object) -> VirtualEvent:
    """Return an argument that has to be an event of the run."""
    return given if isinstance(given, VirtualEvent) else _refuse_other(given, "event")


def _refuse_other(given: object, noun: str) -> NoReturn:
    """Refuse an argument in the place of a stream or an event.

    Raises:
        EnvironmentNotSupportedError: It is one that torch itself has made.
        TypeError: It is none, so torch would raise as well.
    """
    if type(given).__module__.partition(".")[0] != "torch":
        raise TypeError(f"expected a {noun}, not {given!r}")
    if refusals.is_own_thread():
        refusals.refuse_thread("order streams")
    refusals.refuse(
        f"a {noun} that torch itself has made (look the names of torch's modules up when "
        "they are needed)"
    )


def named_device(device: Any) -> torch.device:
    """Return a device as torch does; a number alone is one of an accelerator."""
    if isinstance(device, int):
        return torch.device("cuda", device)
    return torch.device("cpu" if device is None else device)
