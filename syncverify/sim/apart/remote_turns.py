"""The turns of a rank that is a process; see Note [Turns between processes]."""

import threading
import traceback
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager, nullcontext
from dataclasses import replace
from functools import partial
from types import FrameType
from typing import Final

from syncverify.errors import RunEndedError
from syncverify.processes.owner_link import start_beat
from syncverify.processes.wire import Wire
from syncverify.sim.apart import messages
from syncverify.sim.device.streams import own_streams
from syncverify.sim.recording.rank_recorder import RankRecorder
from syncverify.sim.turns.refusals import refuse_thread
from syncverify.sim.turns.scheduler import own_rank
from syncverify.sim.turns.stalls import UNKNOWN_VALUES, Wait
from syncverify.sim.turns.turn_log import AccessKind
from syncverify.trace.records import CollectiveLaunch
from syncverify.trace.source_lines import CodeLine, NoLine
from syncverify.trace.stacks import outermost_frames

# A rank tells its trace when it has grown by this share, so that a lost rank loses no more.
_NEW_PART: Final = 0.25


class TraceReporter:
    """Tells the trace of a rank before the rank ends."""

    def __init__(self, wire: Wire, recorder: RankRecorder) -> None:
        self._wire = wire
        self.recorder = recorder
        self._next_told = 1.0
        self._num_seen = self._num_told = 0

    def tell_what_is_new(self) -> None:
        """Tell the last collective that is new, and the trace so far if much of it is new."""
        trace = self.recorder.trace
        new, self._num_seen = trace[self._num_seen :], len(trace)
        launches = [each for each in new if isinstance(each, CollectiveLaunch)]
        num_records = self.recorder.num_recorded
        if num_records >= self._next_told:
            self._next_told = (1 + _NEW_PART) * num_records + 1
            self.tell(*launches[-1:])
        elif launches:
            self._wire.send(messages.Moved(num_records, launches[-1]))

    def tell(self, last_launch: CollectiveLaunch | None = None) -> None:
        """Tell the trace so far."""
        trace = self.recorder.recorded_so_far()
        self._wire.send(messages.Moved(self.recorder.num_recorded, last_launch, trace))

    @contextmanager
    def beating(self) -> Iterator[None]:
        """Tell once a second, within a block, that the rank has recorded something since."""
        end = threading.Event()
        thread = start_beat(self._beat, OSError, end)
        try:
            yield
        finally:
            end.set()
            thread.join()

    def _beat(self) -> None:
        before, self._num_told = self._num_told, self.recorder.num_recorded
        if self._num_told != before:
            self._wire.send(messages.Moved(self._num_told))


class RemoteTurns:
    """The turns of one rank.

    What is new in its trace is told at each operation, each access to shared state, and each end
    of a turn; the whole trace before hosts go on without values.
    """

    def __init__(
        self,
        wire: Wire,
        take: Callable[[Iterable[messages.SharedChange]], None],
        telling: TraceReporter,
    ) -> None:
        self._wire = wire
        self._take = take
        self._telling = telling
        self._has_begun = self.has_ended = self._has_passed = False
        self._paused_seconds = 0.0
        # Of the shared state, since this rank last gave its turn away.
        self.updates: list[messages.SharedChange] = []
        # Where it was interrupted, outermost first.
        self.stack: tuple[CodeLine, ...] = ()

    def block_until(self, ready: Callable[[], bool], wait: Wait) -> None:
        """Give the turn away until `ready()`."""
        self._begin()

        def may_go_on() -> bool:
            return ready() or (self._has_passed and wait.is_of_stream)

        if not may_go_on():
            self._give_turn(may_go_on, wait)

    def offer_turn(
        self, ready: Callable[[], bool] | None = None, wait: Wait | None = None
    ) -> None:
        """Keep the turn: there is one schedule. Before the first turn, wait for it."""
        self._begin()

    def yield_turn(self, wait: Wait | None = None) -> None:
        """Let other ranks run."""
        self._begin()
        self._give_turn(None, wait)

    def poll(self, kind: str, wait: Wait, is_done: Callable[[], bool]) -> bool:
        """Let other ranks run, then tell whether a resource is done: nothing delays the news."""
        self.require_values()
        self.yield_turn(wait)
        return is_done()

    def hides(self, resource: str) -> bool:
        """Return False: the one schedule delays no news."""
        return False

    def note_access(self, resource: str, access: AccessKind) -> None:
        """Tell the hub what is new; which resource it is does not matter in one schedule."""
        self._telling.tell_what_is_new()

    def count_step(self) -> None:
        """Count an operation."""
        self._begin()
        self._telling.tell_what_is_new()

    def note_pause(self, seconds: float) -> None:
        """Note that the host has slept."""
        self._paused_seconds += seconds

    def require_values(self) -> None:
        """Let a host read values of a device; where none is known, it stands still."""
        if self._has_passed:
            self._give_turn(lambda: False, UNKNOWN_VALUES)

    def interrupt(self, _signal: int, frame: FrameType | None) -> None:
        """Note where the rank stands, and end it; a handler of signals."""
        self.note_stack(frame)
        raise RunEndedError

    def note_stack(self, frame: FrameType | None) -> None:
        """Note the lines of a stack, and that the run of this rank has ended."""
        self.stack = tuple(outermost_frames(traceback.extract_stack(frame)))
        self.has_ended = True

    def _begin(self) -> None:
        if own_rank() is None:
            refuse_thread()
        if self.has_ended:
            raise RunEndedError
        if not self._has_begun:
            self._has_begun = True
            self._give_turn(None, None)

    def _give_turn(self, ready: Callable[[], bool] | None, wait: Wait | None) -> None:
        self._telling.tell_what_is_new()
        while True:
            # What a message copies is no copy of the program.
            streams = own_streams()
            with nullcontext() if streams is None else streams.copying():
                self._wire.send(self._turn_over(ready, wait))
            match self._wire.receive():
                case messages.End():
                    self.has_ended = True
                    raise RunEndedError
                case messages.GoOn():
                    self._telling.tell()
                    self._has_passed = True
                case messages.YourTurn(updates):
                    self._take(updates)
            if ready is None or ready():
                return

    def _turn_over(
        self, ready: Callable[[], bool] | None, wait: Wait | None
    ) -> messages.TurnOver:
        if wait is not None:  # another process is to read it
            missing = partial(tuple, wait.missing_ranks())
            wait = replace(wait, missing_ranks=missing)
        stack = outermost_frames(traceback.extract_stack())
        told = messages.TurnOver(
            ready is None or ready(),
            wait,
            stack[-1] if stack else NoLine.UNKNOWN,
            tuple(self.updates),
            self._paused_seconds,
            self._telling.recorder.num_recorded,
        )
        self.updates.clear()
        self._paused_seconds = 0.0
        return told
