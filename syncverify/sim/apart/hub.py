"""The process that hands out turns to ranks, each of which is a process, and hears their traces.

Note [Turns between processes]
    Each rank runs freely until it first asks for something that ranks share. When all ranks stand
    there, one of them gets a turn, and keeps it until it waits, lets others run, or ends. A
    rank that waits gets a turn again after another rank has changed what they share. If no rank
    can run, the run ends with the stall that threads would end with. So the order of all that
    ranks share depends on the programs alone, and not on the machine.

    A clock decides in one case alone: a rank that keeps its turn without a sign of life. It is
    interrupted, and says where it stood. Ranks that only sleep are ended once their sleeps add
    up to the same bound.
"""

import signal
import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, Final

from syncverify.processes.silence import START_SECONDS
from syncverify.processes.supervised import HungUp, Supervised, attend
from syncverify.sim.apart import messages
from syncverify.sim.turns.stalls import IdlePauses, Position, Stall, deadlock, endless
from syncverify.trace.records import CollectiveLaunch, TraceRecord
from syncverify.trace.source_lines import NoLine

_TICK_SECONDS: Final = 0.2
_END_SECONDS: Final = 4.0
# So many turns for each rank, in which no rank records anything, are an endless run.
_MAX_IDLE_TURNS_PER_RANK: Final = 2_000


@dataclass(slots=True)
class HeardRank:
    """One rank, as the hub knows it."""

    rank: int
    process: Supervised
    has_begun: bool = False  # its program has started, after imports that take seconds
    # What other ranks did since its last turn.
    outbox: list[messages.SharedChange] = field(default_factory=list)
    stands: messages.TurnOver | None = None  # how it gave its turn away; None: it runs
    ended: messages.RankEnded | None = None
    lost: str | None = None  # how its process ended, if without a last word
    trace: list[TraceRecord] = field(default_factory=list)
    last_launch: CollectiveLaunch | None = None
    num_records: int = 0

    @property
    def has_ended(self) -> bool:
        """Tell whether nothing more comes from it."""
        return self.ended is not None or self.lost is not None

    @property
    def has_failed(self) -> bool:
        """Tell whether its end ends the run."""
        if self.ended is None or self.lost is not None:
            return self.lost is not None
        came_to = self.ended.came_to
        is_failure = came_to is not None and came_to.is_failure
        return self.ended.mismatch is not None or is_failure

    @property
    def can_run(self) -> bool:
        """Tell whether a turn may bring it further."""
        stands = None if self.has_ended else self.stands
        return stands is not None and (stands.can_go_on or bool(self.outbox))

    def position(self) -> Position:
        """Return where it stands."""
        stands = self.stands
        where = (stands.awaited, stands.line) if stands else (None, NoLine.UNKNOWN)
        return Position(self.rank, self.has_ended, *where)


class Hub:
    """Hands out the turns of one run.

    `processes` are those of the ranks, by rank; each has got its work. With `passes_stalls`, hosts
    go on in waits of streams once no rank can run.
    """

    def __init__(
        self,
        processes: Sequence[Supervised],
        hang_timeout_seconds: float,
        *,
        passes_stalls: bool = False,
    ) -> None:
        self.ranks = [HeardRank(rank, each) for rank, each in enumerate(processes)]
        self._hang_timeout_seconds = hang_timeout_seconds
        self._passes_stalls = passes_stalls
        self.stall: Stall | None = None
        # The reason for which hosts that had gone on without values stopped again.
        self.passed_stall: Stall | None = None
        self.has_passed = False
        self._num_idle_turns = 0
        self._pauses = IdlePauses(hang_timeout_seconds, processes)
        self._max_idle_turns = _MAX_IDLE_TURNS_PER_RANK * len(processes)
        self._num_records_before = -1

    def run(self) -> None:
        """Run all ranks until they have ended, one fails, or none can go on."""
        try:
            for own in self.ranks:
                self._hear_from(own)
            self._take_turns()
        finally:
            self._end()

    def outcomes(self) -> list[Any]:
        """Return the outcomes of the programs that nothing ended from outside, by rank."""
        ended = [own.ended.came_to for own in self.ranks if own.ended is not None]
        return [came_to for came_to in ended if came_to is not None]

    def _take_turns(self) -> None:
        last = -1
        while not self._is_over():
            # In the order of ranks after the last one.
            order = (*self.ranks[last + 1 :], *self.ranks[: last + 1])
            chosen = next((own for own in order if own.can_run), None)
            if chosen is not None:
                last = chosen.rank
                self._play_turn(chosen)
            elif not self._let_hosts_go_on():
                return

    def _is_over(self) -> bool:
        if self.stall is not None and not self.has_passed:
            return True
        fails = any(own.has_failed for own in self.ranks)
        return fails or all(own.has_ended for own in self.ranks)

    def _let_hosts_go_on(self) -> bool:
        """Note that no rank can run; let hosts pass waits of streams, and tell whether any did."""
        stall = deadlock([own.position() for own in self.ranks])
        if self.has_passed:
            self.passed_stall = stall
            return False
        self.stall = stall
        if stall.is_certain or not self._passes_stalls:
            return False
        self.has_passed = True
        for own in self.ranks:
            if own.stands and not own.has_ended:
                own.process.send(messages.GoOn())
                own.stands = None
        for own in self.ranks:
            self._hear_from(own)
        return True

    def _play_turn(self, own: HeardRank) -> None:
        own.stands, sent, own.outbox = None, own.outbox, []
        own.process.send(messages.YourTurn(sent))
        self._hear_from(own)
        num_records = sum(each.num_records for each in self.ranks)
        is_idle = num_records == self._num_records_before
        self._num_idle_turns = self._num_idle_turns + 1 if is_idle else 0
        self._num_records_before = num_records
        paused = own.stands.paused_seconds if own.stands else 0.0
        is_over = paused > 0 and self._pauses.are_over(paused, num_records)
        if is_over or self._num_idle_turns > self._max_idle_turns:
            blocked = frozenset(own.rank for own in self.ranks if not own.can_run)
            self.stall = endless([own.position() for own in self.ranks], blocked)

    def _hear_from(self, own: HeardRank) -> None:
        """Hear a rank until it has given its turn away, has ended, or hangs."""
        while own.stands is None and not own.has_ended:
            self._hear_once(own)
            bound = self._hang_timeout_seconds if own.has_begun else START_SECONDS
            if own.process.silence.shows_a_hang(bound):
                self._interrupt(own)

    def _interrupt(self, own: HeardRank) -> None:
        """End a rank that keeps its turn, and note where it stood."""
        own.process.signal(signal.SIGINT)
        self._await_end(own, time.monotonic() + _END_SECONDS)
        stack = own.ended.stack if own.ended else ()
        self.stall = self.stall or Stall("never_returns", (own.rank,), stack)
        if not own.has_ended:
            own.lost = "a hang in code below Python"

    def _hear_once(self, own: HeardRank) -> None:
        for _, word in attend([own.process], _TICK_SECONDS):
            match word:
                case messages.Begun():
                    own.has_begun = True
                case messages.TurnOver():
                    own.stands, own.num_records = word, word.num_records
                    self._spread(own, word.updates)
                case messages.Moved():
                    own.num_records = word.num_records
                    own.last_launch = word.last_launch or own.last_launch
                    own.trace = own.trace if word.trace is None else word.trace
                case messages.RankEnded():
                    own.ended = word
                    if not self.has_passed:
                        own.trace = word.trace
                    self._spread(own, word.updates)
                case HungUp():
                    own.lost = own.process.exit_reason()

    def _spread(self, own: HeardRank, updates: Sequence[messages.SharedChange]) -> None:
        for update in updates:
            members = update.key.ranks if isinstance(update, messages.Arrived) else None
            for other in self.ranks:
                if other is not own and (members is None or other.rank in members):
                    other.outbox.append(update)

    def _end(self) -> None:
        """Unwind the ranks that are still there, and hear their traces."""
        for own in self.ranks:
            if own.stands is not None and not own.has_ended:
                own.process.send(messages.End())
            elif not own.has_ended:
                own.process.signal(signal.SIGINT)
        deadline = time.monotonic() + _END_SECONDS
        for own in self.ranks:
            self._await_end(own, deadline)

    def end_processes(self) -> None:
        """End the processes, each of which may first leave by itself."""
        deadline = time.monotonic() + _END_SECONDS
        for own in self.ranks:
            seconds = max(0.0, deadline - time.monotonic()) if own.ended else 0.0
            own.process.process.exit_code(seconds)
            own.process.end()

    def _await_end(self, own: HeardRank, deadline: float) -> None:
        while not own.has_ended and time.monotonic() < deadline:
            self._hear_once(own)
