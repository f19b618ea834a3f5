"""The turns of a rank that is a process: another process hands them out.

A rank runs freely until it first asks for something that ranks share. From then on one rank runs
at a time, and keeps its turn until it has to wait, or lets others run. So the order of all that
ranks share depends on the programs alone, and not on the machine.
"""

from __future__ import annotations

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
from syncverify.sim.apart.messages import End, GoOn, Moved, SharedChange, TurnOver
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
        self._recorder = recorder
        self._next_told = 1.0
        self._num_seen = self._num_told = 0

    def num_records(self) -> int:
        """Return the number of records so far, accesses included."""
        return self._recorder.num_recorded

    def tell_what_is_new(self) -> None:
        """Tell the last collective that is new, and the trace so far if much of it is new."""
        trace = self._recorder.trace
        new, self._num_seen = trace[self._num_seen :], len(trace)
        launches = [each for each in new if isinstance(each, CollectiveLaunch)]
        num_records = self.num_records()
        if num_records >= self._next_told:
            self._next_told = (1 + _NEW_PART) * num_records + 1
            self.tell(*launches[-1:])
        elif launches:
            self._wire.send(Moved(num_records, launches[-1]))

    def tell(self, last_launch: CollectiveLaunch | None = None) -> None:
        """Tell the trace so far."""
        trace = self._recorder.recorded_so_far()
        self._wire.send(Moved(self.num_records(), last_launch, trace))

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
        if self.num_records() != self._num_told:
            self._num_told = self.num_records()
            self._wire.send(Moved(self._num_told))


class RemoteTurns:
    """The turns of one rank.

    What is new in its trace is told at each operation, each access to shared state, and each end
    of a turn; the whole trace before hosts go on without values.

    Attributes:
        updates: Changes of the shared state since this rank last gave its turn away.
        stack: Lines at which this rank was interrupted, the outermost first.
    """

    def __init__(
        self,
        wire: Wire,
        take: Callable[[Iterable[SharedChange]], None],
        telling: TraceReporter,
    ) -> None:
        self._wire = wire
        self._take = take
        self._telling = telling
        self._has_begun = self.has_ended = self._has_passed = False
        self._paused_seconds = 0.0
        self.updates: list[SharedChange] = []
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
        """Let other ranks run, then tell whether a resource is done.

        Returns:
            Whether it is: there is one schedule, and it delays no news.
        """
        self.require_values()
        self.yield_turn(wait)
        return is_done()

    def hides(self, resource: str) -> bool:
        """Return False: there is one schedule, and it delays no news."""
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
            self._await_turn()
            if ready is None or ready():
                return

    def _turn_over(
        self, ready: Callable[[], bool] | None, wait: Wait | None
    ) -> TurnOver:
        updates = tuple(self.updates)
        self.updates.clear()
        paused, self._paused_seconds = self._paused_seconds, 0.0
        return TurnOver(
            can_go_on=ready is None or ready(),
            awaited=None if wait is None else _as_now(wait),
            line=_innermost(),
            updates=updates,
            paused_seconds=paused,
            num_records=self._telling.num_records(),
        )

    def _await_turn(self) -> None:
        word = self._wire.receive()
        if isinstance(word, End):
            self.has_ended = True
            raise RunEndedError
        if isinstance(word, GoOn):
            self._telling.tell()
            self._has_passed = True
        else:
            self._take(word.updates)


def _as_now(wait: Wait) -> Wait:
    """Return a wait that another process can read."""
    return replace(wait, missing_ranks=partial(tuple, wait.missing_ranks()))


def _innermost() -> CodeLine | NoLine:
    stack = outermost_frames(traceback.extract_stack())
    return stack[-1] if stack else NoLine.UNKNOWN
