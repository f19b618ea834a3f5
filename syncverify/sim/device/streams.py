"""The streams of one rank: the current stream, the marks, and the waits for marks."""

import functools
import itertools
import threading
from collections import Counter, defaultdict
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager
from typing import Any

import torch
import torch.distributed as dist
from typing_extensions import override

from syncverify.holding import holding
from syncverify.sim.device.engine_streams import EngineStreams
from syncverify.sim.device.nccl_names import SeenBackends
from syncverify.sim.device.reducers import ReducerWaits
from syncverify.sim.device.seen_device import SeenDevice
from syncverify.sim.device.virtual_streams import (
    StreamQueues,
    VirtualStream,
    own_stream,
)
from syncverify.sim.turns.refusals import is_own_thread, refuse_thread
from syncverify.sim.turns.stalls import TurnTaking, Wait
from syncverify.trace import records
from syncverify.trace.source_lines import Origin
from syncverify.trace.stacks import calling_frames, calling_line, ordering_line
from syncverify.trace.sync_points import is_ignored

# By stream: the latest mark that is reached. Marks count up on a rank.
_Reached = Counter[str]


class ReachedMarks:
    """The marks that the device has reached for certain, as the host of one rank knows.

    These are the marks that the host has waited for, and all marks ordered before them: a small
    vector clock for each mark. A host that polls a mark may get "not yet" by bad timing, unless
    it has waited for the mark, or for a mark that the device reaches only afterwards.
    """

    def __init__(self) -> None:
        self._host = _Reached()
        # Marks reached for certain once a stream has reached its end, or a mark.
        self._at_end = defaultdict[str, _Reached](_Reached)
        self._at_mark: dict[int, tuple[str, _Reached]] = {}

    def mark(self, stream: str, mark: int) -> None:
        """Note a mark at the end of a stream; all queued work comes after the host's waits."""
        self._at_end[stream] |= self._host
        self._at_end[stream][stream] = mark
        self._at_mark[mark] = stream, self._at_end[stream].copy()

    def wait(self, stream: str, mark: int) -> None:
        """Note that a stream waits for a mark."""
        self._at_end[stream] |= self._at_mark[mark][1]

    def wait_on_host(self, mark: int) -> None:
        """Note that the host waits for a mark."""
        self._host |= self._at_mark[mark][1]

    def host_has_reached(self, mark: int) -> bool:
        """Tell whether the host knows that the device has reached a mark."""
        return self._host[self._at_mark[mark][0]] >= mark

    def host_has_reached_end(self, stream: str) -> bool:
        """Return whether the host knows that a stream has reached its last mark.

        True even if operators came after the last mark or wait, since operators are not
        recorded here: "not yet" would be wrong for an idle stream.
        """
        return self._at_end[stream] <= self._host


class RankStreams(StreamQueues):
    """The streams of one rank.

    `recorder` records its streams, marks, waits and memory: a `RankRecorder`.
    """

    def __init__(self, recorder: Any) -> None:
        super().__init__()
        self.recorder = recorder
        self.engine = EngineStreams(self)
        self._callback_numbers = itertools.count(1)
        self._entered: list[VirtualStream] = []
        # Callbacks of futures that have not run yet; of those that run, the innermost last, functions
        # that let go of inputs.
        self.callbacks: list[object] = []
        self._kept_inputs: list[list[Callable[[], None]]] = []
        self.reducers = ReducerWaits()
        # Collectives without a wait so far. NCCL keeps their tensors alive until a wait, and so
        # does this list.
        self.in_flight: list[dist.Work] = []
        self.serves_subject = False  # the subject runs, not the harness
        self._is_copying = False
        self.num_splits = Counter[str]()  # by name of the group
        self.seen: SeenDevice | None = None  # by the subject; None for the CPU
        self.backends = SeenBackends()
        # Answers a host that polls the device; without it the answer is always "done".
        self.scheduler: TurnTaking | None = None
        self._reached = ReachedMarks()
        self._clock_lines = set[Origin]()

    def tell(self, device: torch.device, num_devices: int | None = None) -> None:
        """Tell the subject of a device that its tensors and streams are on.

        It may name `num_devices`; None for any number.
        """
        self.seen = SeenDevice(device, self.recorder, num_devices)
        self.default.device = device

    def at(self, moment: records.Moment) -> AbstractContextManager[Any]:
        """Stamp the records of a block with a moment."""
        return holding(self.recorder, "moment", moment)

    @property
    def takes_copies(self) -> bool:
        """Tell whether a function that copies is the subject's call, and not a part of one."""
        return self.serves_subject and not self._is_copying

    def copying(self) -> AbstractContextManager[Any]:
        """Take all functions that copy for parts of one call, for the length of a block.

        A function mode gets such a function by its name, and calls it again.
        """
        return holding(self, "_is_copying", True)

    @property
    def is_alone(self) -> bool:
        """Tell whether the default stream is the only one."""
        return len(self._numbers) == 1

    @override
    def create(self, device: Any = None, priority: int = 0) -> VirtualStream:
        stream = super().create(device, priority)
        self._record(records.StreamCreated, stream.name, calling_line())
        return stream

    def _record(
        self, kind: Callable[..., records.TraceRecord], *fields: object
    ) -> None:
        self.recorder.trace.append(kind(self.recorder.moment, *fields))

    def internal(self, name: str) -> str:
        """Register a stream that subjects cannot see, and return its name."""
        self._numbers.setdefault(name, len(self._numbers))
        return name

    def new_callback_stream(self) -> VirtualStream:
        """Make a stream for the callback of a future; subjects cannot see it."""
        name = f"callback {next(self._callback_numbers)}"
        return VirtualStream(self, self.internal(name))

    @contextmanager
    def keeping_inputs(self) -> Iterator[list[Callable[[], None]]]:
        """Keep the inputs of collectives that a callback orders its stream after, for a block.

        NCCL keeps them until the host knows that the collective is complete. Here they are kept
        until a stream of the program waits for the callback.
        """
        self._kept_inputs.append([])
        yield self._kept_inputs[-1]
        self._kept_inputs.pop()

    def let_go_of_inputs(self, let_go: Callable[[], None]) -> None:
        """Let go of the inputs of a collective that the current stream is ordered after."""
        if self._kept_inputs:  # only the stream of a callback is ordered
            self._kept_inputs[-1].append(let_go)
        else:
            let_go()

    @override
    def current(self) -> VirtualStream:
        return self.engine.current()

    @override
    def set_current(self, stream: VirtualStream) -> None:
        self.engine.set_current(stream)

    @override
    def push(self, stream: VirtualStream) -> None:
        _refuse_own_thread()
        super().push(stream)

    @override
    def _previous(self) -> list[VirtualStream]:
        return self._entered  # of all threads that act for the rank

    def record_stream(self, tensor: torch.Tensor, stream: VirtualStream) -> None:
        """Defer the reuse of a tensor's memory until a stream is done: `Tensor.record_stream`."""
        if not is_ignored("record_stream"):
            self.recorder.storage_of(tensor).record_stream(own_stream(stream).name)

    @override
    def record_consumer(self, tensor: torch.Tensor, stream: VirtualStream) -> None:
        self.recorder.storage_of(tensor).record_consumer(stream.name)

    def note_clock(self) -> None:
        """Note that the calling line compares a time of a clock; each line once."""
        line = calling_line()
        if line not in self._clock_lines:
            self._clock_lines.add(line)
            self._record(records.ClockCompared, self.current().name, line)

    def note_group(self, ranks: Sequence[int]) -> None:
        """Note that the rank makes a group as every rank has to."""
        frames = calling_frames()
        self._record(records.GroupMade, self.current().name, tuple(ranks), *frames)

    def note_shard(self, shard: torch.Tensor, ranks: Sequence[int]) -> None:
        """Note a shard that comes without the shape of its whole tensor."""
        stream, shape, (source, _) = self.current().name, shard.shape, calling_frames()
        self._record(records.ShardGiven, stream, tuple(shape), tuple(ranks), source)

    @override
    def mark(self, stream: VirtualStream, origin: Origin | None = None) -> int:
        _refuse_own_thread()
        self._num_marks += 1
        line = origin or ordering_line()
        self._record(records.Mark, stream.name, self._num_marks, line)
        self._reached.mark(stream.name, self._num_marks)
        return self._num_marks

    @override
    def wait(
        self, stream: VirtualStream, mark: int, origin: Origin | None = None
    ) -> None:
        _refuse_own_thread()
        if origin is None and is_ignored("stream_wait"):
            return
        self._record(records.StreamWait, stream.name, mark, origin or ordering_line())
        self._reached.wait(stream.name, mark)

    @override
    def wait_on_host(self, mark: int, *, is_asked_for: bool = False) -> None:
        # A thread that waits orders what it reads then, and its rank once that waits for it.
        if is_asked_for and is_ignored("host_wait"):
            return
        told = mark, ordering_line(), is_asked_for
        wait = functools.partial(self._wait_on_host, *told)
        is_beside_rank = own_streams() is None and is_own_thread()
        if not is_beside_rank:
            wait()
        elif not self.recorder.keep_for_thread(wait):
            _refuse_own_thread()

    def _wait_on_host(self, mark: int, source: Origin, is_asked_for: bool) -> None:  # noqa: FBT001  # of one caller
        self.require_values()
        self._record(records.HostWait, mark, source, is_asked_for)
        self._reached.wait_on_host(mark)

    def require_values(self) -> None:
        """Let the host read values of the device; where none is known, it stands still."""
        if self.scheduler is not None:
            self.scheduler.require_values()

    @override
    def synchronize(self) -> None:
        # The results of collectives are in memory afterwards.
        for work in tuple(self.in_flight):
            work.wait()
        for name in self._numbers:
            mark = self.mark(VirtualStream(self, name))
            self.wait_on_host(mark, is_asked_for=True)

    @override
    def is_done(self, mark: int) -> bool:
        """Return whether the device has reached a mark, as far as the host can see.

        False only if a schedule says so and the host has not waited for the mark. After
        True, all that the host does is ordered after the mark.
        """
        if self._reached.host_has_reached(mark):
            return True
        shows = self._shows(f"mark {mark}")
        if shows:
            # A host that has seen the mark may reuse or read the memory before it, so the
            # answer is as good as a wait.
            self.wait_on_host(mark, is_asked_for=True)
        return shows

    @override
    def is_idle(self, stream: VirtualStream) -> bool:
        is_done = self._reached.host_has_reached_end(stream.name)
        shows = is_done or self._shows(f"stream {stream.name}")
        if shows:
            self.wait_on_host(self.mark(stream), is_asked_for=True)
        return shows

    def _shows(self, queried: str) -> bool:
        if self.scheduler is None:
            return True
        line = calling_line()
        wait = Wait(f"query() of {queried}, at {line}", tuple, queried, line)
        return self.scheduler.poll("query", wait, lambda: True)


def _refuse_own_thread() -> None:
    """Refuse a thread of the subject, which would order streams at any moment of the run."""
    if own_streams() is None and is_own_thread():
        refuse_thread("order streams")


_THREAD = threading.local()


def own_streams() -> RankStreams | None:
    """Return the streams of the calling thread's rank; None on any other thread."""
    return getattr(_THREAD, "streams", None)


def use_streams(streams: RankStreams | None) -> None:
    """Give the calling thread the streams of a rank, or none, from now on."""
    _THREAD.streams = streams
