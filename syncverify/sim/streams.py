"""Virtual streams and events, with CUDA's semantics and no device.

Operators run at once, on the host. What a stream stands for is the order in which a
device might have run them, so all that a stream does is to write down what was queued
on it, and what it waits for.

Streams have names, given in order of creation on each rank. Priorities are kept and mean
nothing: they never order work. Streams do not wait for the default stream by themselves,
as torch's never do.
"""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING, Any, NoReturn

import torch
import torch.distributed as dist
from typing_extensions import override

from syncverify.sim.engine_streams import EngineStreams
from syncverify.sim.passed_marks import PassedMarks
from syncverify.sim.stalls import Wait
from syncverify.sourcelines import calling_line
from syncverify.trace import DEFAULT_STREAM, HostWait, Mark, StreamCreated, StreamWait

if TYPE_CHECKING:
    from syncverify.sim.scheduler import Scheduler


class VirtualStream:
    """A queue of one rank; equal and hash-equal where it is the same queue.

    Attributes:
        name: Unique on its rank.
        device: What it was asked to belong to.
        priority: As asked for.
    """

    def __init__(
        self, streams: RankStreams, name: str, device: Any = None, priority: int = 0
    ) -> None:
        self._streams = streams
        self.name = name
        self.device = _device(device)
        self.priority = priority

    def wait_stream(self, stream: VirtualStream) -> None:
        """Run later work only after what another stream holds now."""
        self._streams.wait(self, self._streams.mark(stream))

    def wait_event(self, event: VirtualEvent) -> None:
        """Run later work only after an event."""
        event.wait(self)

    def record_event(self, event: VirtualEvent | None = None) -> VirtualEvent:
        """Record an event, a new one if none is given."""
        event = VirtualEvent(self._streams) if event is None else event
        event.record(self)
        return event

    def synchronize(self) -> None:
        """Let the host wait for everything that the stream holds now."""
        self._streams.wait_on_host(self._streams.mark(self))

    def query(self) -> bool:
        """Tell whether the stream has nothing left to do."""
        return self._streams.is_idle(self)

    @property
    def stream_id(self) -> int:
        """Number of the stream on its rank, 0 for the default stream."""
        return self._streams.number_of(self)

    cuda_stream = native_handle = stream_id

    @property
    def device_index(self) -> int:
        """Number of the device, which is the rank's only one."""
        return self.device.index or 0

    @staticmethod
    def priority_range() -> tuple[int, int]:
        """Return the least and the greatest priority, as CUDA counts them."""
        return 0, -1

    @override
    def __eq__(self, other: object) -> bool:
        if not isinstance(other, VirtualStream):
            return False
        return other._streams is self._streams and other.name == self.name

    @override
    def __hash__(self) -> int:
        return hash(self.stream_id)

    @override
    def __repr__(self) -> str:
        return f"<{self.name}>"

    def __enter__(self) -> VirtualStream:
        self._streams.push(self)
        return self

    def __exit__(self, *_: object) -> None:
        self._streams.pop()


class VirtualEvent:
    """A mark in a stream, which may be recorded again.

    Args:
        streams: Of the rank.
        enable_timing: Whether `elapsed_time` may be asked.
    """

    def __init__(self, streams: RankStreams, *, enable_timing: bool = False) -> None:
        self._streams = streams
        self._enable_timing = enable_timing
        self._mark: int | None = None
        self.device = streams.default.device

    def record(self, stream: VirtualStream | None = None) -> None:
        """Put the mark after all that a stream holds now, by default the current one."""
        self._mark = self._streams.mark(stream or self._streams.current())

    def wait(self, stream: VirtualStream | None = None) -> None:
        """Let a stream wait; an event that was never recorded orders nothing."""
        if self._mark is not None:
            self._streams.wait(stream or self._streams.current(), self._mark)

    def synchronize(self) -> None:
        """Let the host wait."""
        if self._mark is not None:
            self._streams.wait_on_host(self._mark)

    def query(self) -> bool:
        """Tell whether the device has passed the mark."""
        if self._mark is None:
            return True
        return self._streams.is_done(self._mark)

    def elapsed_time(self, end_event: VirtualEvent) -> float:
        """Return a made-up time in ms: there is no clock, but marks are in host order.

        Raises:
            RuntimeError: One of the events has no time, as in torch.
        """
        if not (self._enable_timing and end_event._enable_timing):
            _raise("both events must be created with argument 'enable_timing=True'")
        if self._mark is None or end_event._mark is None:
            _raise("both events must be recorded before calculating elapsed time")
        return float(end_event._mark - self._mark)


class RankStreams:
    """The streams of one rank.

    Args:
        recorder: Receives marks and waits.

    Attributes:
        default: The stream that is current at first.
        engine: What autograd makes of streams.
        serves_subject: Whether the subject runs, and not the harness.
        in_flight: Collectives that nobody has waited for. NCCL holds their tensors as
            long, and so does this.
        scheduler: Says whether the device looks done to a host that polls; it always
            does where there is none.
    """

    def __init__(self, recorder: Any) -> None:
        self._recorder = recorder
        self.default = VirtualStream(self, DEFAULT_STREAM)
        self.engine = EngineStreams(self)
        self._numbers = {self.default.name: 0}
        self._num_marks = 0
        self._previous: list[VirtualStream] = []
        self.in_flight: list[dist.Work] = []
        self.serves_subject = False
        self.scheduler: Scheduler | None = None
        self._passed = PassedMarks()

    @property
    def is_alone(self) -> bool:
        """Whether the default stream is the only one."""
        return len(self._numbers) == 1

    def number_of(self, stream: VirtualStream) -> int:
        """Return the position of a stream in order of creation."""
        return self._numbers[stream.name]

    def create(self, device: Any = None, priority: int = 0) -> VirtualStream:
        """Make a stream."""
        number = sum(name.startswith("stream ") for name in self._numbers) + 1
        stream = VirtualStream(self, f"stream {number}", device, priority)
        self._numbers[stream.name] = len(self._numbers)
        recorder, source = self._recorder, calling_line()
        recorder.events.append(StreamCreated(recorder.moment, stream.name, source))
        return stream

    def internal(self, name: str) -> str:
        """Take note of a stream that subjects cannot see, and return its name."""
        self._numbers.setdefault(name, len(self._numbers))
        return name

    def current(self) -> VirtualStream:
        """Return the stream on which the calling thread queues work."""
        return self.engine.current()

    def push(self, stream: VirtualStream) -> None:
        """Make a stream current until `pop`."""
        self._previous.append(self.current())
        self.engine.set_current(stream)

    def pop(self) -> None:
        """Make that stream current which was so before the matching `push`."""
        self.engine.set_current(self._previous.pop())

    def record_stream(self, tensor: torch.Tensor, stream: VirtualStream) -> None:
        """Keep a tensor's memory from going back before a stream is done with it."""
        self._recorder.record_stream(tensor, stream.name)

    def record_consumer(self, tensor: torch.Tensor, stream: VirtualStream) -> None:
        """Do the same for a gradient that autograd gives to a node on another stream."""
        self._recorder.record_consumer(tensor, stream.name)

    def wait_for_copy_of(self, tensor: torch.Tensor) -> None:
        """Let the host wait for the current stream, if it would for a tensor's values."""
        self._recorder.wait_for_copy_of(tensor)

    def note_resized(self, storage: torch.UntypedStorage) -> None:
        """Note that a storage gave its memory back, or got other memory."""
        self._recorder.storages.resized(storage, self.current().name)

    def mark(self, stream: VirtualStream) -> int:
        """Put a mark after all that a stream holds now."""
        self._num_marks += 1
        recorder, source = self._recorder, calling_line()
        recorder.events.append(
            Mark(recorder.moment, stream.name, self._num_marks, source)
        )
        self._passed.mark(stream.name, self._num_marks)
        return self._num_marks

    def wait(self, stream: VirtualStream, mark: int) -> None:
        """Let a stream wait for a mark."""
        recorder, source = self._recorder, calling_line()
        recorder.events.append(StreamWait(recorder.moment, stream.name, mark, source))
        self._passed.wait(stream.name, mark)

    def wait_on_host(self, mark: int) -> None:
        """Let the host wait for a mark."""
        recorder, source = self._recorder, calling_line()
        recorder.events.append(HostWait(recorder.moment, mark, source))
        self._passed.wait_on_host(mark)

    def synchronize(self) -> None:
        """Let the host wait for everything that was queued on any stream.

        Collectives are among it, so that their results are there afterwards.
        """
        for work in tuple(self.in_flight):
            work.wait()
        for name in self._numbers:
            self.wait_on_host(self.mark(VirtualStream(self, name)))

    def is_done(self, mark: int) -> bool:
        """Tell whether the device has passed a mark, as far as it shows.

        Returns:
            False only where a schedule says so, and the host has not waited for the
            mark. After True, what the host does next is ordered after it.
        """
        if self._passed.host_has_passed(mark):
            return True
        shows = self._shows(f"mark {mark}")
        if shows:
            self.wait_on_host(mark)
        return shows

    def is_idle(self, stream: VirtualStream) -> bool:
        """Tell whether a stream is done, as `is_done` does."""
        is_done = self._passed.host_has_passed_end(stream.name)
        shows = is_done or self._shows(f"stream {stream.name}")
        if shows:
            self.wait_on_host(self.mark(stream))
        return shows

    def _shows(self, queried: str) -> bool:
        if self.scheduler is None:
            return True
        wait = Wait(f"query() of {queried}, at {calling_line()}", tuple, queried)
        return self.scheduler.poll("query", wait, lambda: True)


def _device(device: Any) -> torch.device:
    """Read what torch takes for a device; a number alone is one of an accelerator."""
    if isinstance(device, int):
        return torch.device("cuda", device)
    return torch.device("cpu" if device is None else device)


_THREAD = threading.local()


def own_streams() -> RankStreams | None:
    """Return the streams of the rank whose thread this is; None on any other thread."""
    return getattr(_THREAD, "streams", None)


def enter_rank(streams: RankStreams | None) -> None:
    """Say which rank the calling thread is, from now on."""
    _THREAD.streams = streams


def _raise(message: str) -> NoReturn:
    raise RuntimeError(message)
