"""The ranks of a torchrun job, as their signs of life and their outcomes in its store show them.

Note [Signs of life]
    The ranks of a job may be on other machines, where no kernel shows them. So
    a thread of each rank writes a sign of life once a second: a number, the status of the
    rank, the processor time that it has used, and the work of its descendants. A rank whose
    number stays the same has died, is stopped, keeps Python from running, or is cut off; from
    afar these look alike. Clocks of two machines are never compared: a reader counts the
    seconds since it saw another number.
"""

import os
import threading
import time
from dataclasses import dataclass, field
from typing import ClassVar

import torch.distributed as dist
from typing_extensions import override

from syncverify.errors import NoVerdictError
from syncverify.playing.faults import outcomes_fault, positions
from syncverify.playing.gathering import Gathering
from syncverify.playing.messages import (
    SignOfLife,
    Status,
    pack,
    unpack_data,
    unpack_outcome,
)
from syncverify.processes.owner_link import start_beat
from syncverify.processes.process_state import LocalProcess, Work
from syncverify.processes.silence import SilenceKind
from syncverify.trace.recorder import Recorder
from syncverify.trace.run import Fault

_IDLE_SECONDS = 0.1  # a rank that waits uses less in one period
# Stands for the first sign of a rank, which comes late on a busy machine.
_NONE_YET = SignOfLife(0, 0, Status(0, (), in_torch=False, launches=()), 0.0, Work())


class Helpers:
    """The descendants of this process, which are looked at only while it is idle itself."""

    def __init__(self) -> None:
        self._used_seconds = 0.0
        self._work = Work()

    def look(self, used_seconds: float) -> Work:
        """Return the work of the descendants at the last look."""
        if used_seconds - self._used_seconds < _IDLE_SECONDS:
            self._work = LocalProcess(os.getpid()).work_of_descendants()
        self._used_seconds = used_seconds
        return self._work


class Pulse:
    """The thread that writes the signs of life of this rank, until the store is gone.

    No other thread uses its client of the store.
    """

    def __init__(self, store: dist.Store, rank: int) -> None:
        self._store = store
        self._key = f"sign/{rank}"
        self._playing = (0, threading.current_thread(), Recorder())
        self._helpers = Helpers()
        self._number = 0
        self._beat()
        start_beat(self._beat, dist.DistError)

    def play(self, job: int, recorder: Recorder) -> None:
        """Note that the calling thread plays a job."""
        self._playing = (job, threading.current_thread(), recorder)

    def _beat(self) -> None:
        self._number += 1
        job, player, recorder = self._playing
        used_seconds = time.process_time()
        helpers = self._helpers.look(used_seconds)
        status = Status.of(player, recorder)
        sign = pack(SignOfLife(self._number, job, status, used_seconds, helpers))
        self._store.set(self._key, sign)  # type: ignore[arg-type]  # bytes too


@dataclass(eq=False)
class RemoteRank:
    """A rank of the job, as its signs of life show it; without one it is silent after a time."""

    _store: dist.Store
    _rank: int
    _machine: str
    _patience_seconds: float
    _last: SignOfLife = _NONE_YET
    _seen: float = field(default_factory=time.monotonic)

    @property
    def pid(self) -> None:
        """None: the process may be on another machine."""

    def look(self) -> SignOfLife | None:
        """Return the last sign of the rank; None if the rank is silent."""
        key = f"sign/{self._rank}"
        if self._store.check([key]):
            sign = unpack_data(self._store.get(key), SignOfLife)
            if sign.number != self._last.number:
                self._last, self._seen = sign, time.monotonic()
        silence_seconds = time.monotonic() - self._seen
        return None if silence_seconds > self._patience_seconds else self._last

    def end(self) -> str | None:
        """Return the way in which the rank said that it ends; None if it did not."""
        key = f"end/{self._rank}"
        if not self._store.check([key]):
            return None
        return f"exit code {int(self._store.get(key))} on {self._machine}"

    def why_silent(self) -> str:
        """Say that there is no sign of the rank."""
        return (
            f"no sign of life for {self._patience_seconds:.0f} s from {self._machine}: it "
            "was ended or stopped, keeps Python from running, or is cut off"
        )

    def stacks(self) -> str:
        """Return nothing: from afar no process shows its stacks."""
        return ""

    def processor_seconds(self) -> float:
        """Return the processor time of the last sign."""
        return self._last.processor_seconds

    def work_of_descendants(self) -> Work:
        """Return the work of descendants in the last sign."""
        return self._last.helpers


_FIRST_PAUSE_SECONDS = 0.001
_LAST_PAUSE_SECONDS = 0.02
_LOOK_SECONDS = 1.0


@dataclass(kw_only=True)
class StoreGathering(Gathering[RemoteRank]):
    """The outcomes in torchrun's store."""

    aftershock_seconds: ClassVar[float] = 10.0  # on machines of any speed

    store: dist.Store
    job: int

    def lost(self) -> dict[int, str]:
        """Return, by rank, how a rank ended early, or why it counts as silent."""
        silent = {rank: self.processes[rank].why_silent() for rank in self.silent()}
        return {**self.died, **silent}

    def fault_or_loss(self, again: str) -> Fault | None:
        """Return the reason why not all ranks reached their end.

        `again` is the command that plays the scenario again.

        Raises:
            NoVerdictError: A rank was lost, and no fault of a rank explains it.
        """
        if self._has_fault():
            return outcomes_fault(self.outcomes)
        lost = sorted(self.lost().items())
        if not lost:
            return self.fault()
        issued = {rank: status.launches for rank, status in self.statuses.items()}
        lines = [
            f"lost {', '.join(f'rank {rank}' for rank, _ in lost)}",
            *(f"rank {rank}: {how}" for rank, how in lost),
            *positions(issued, ()),
            *(f"rank {rank}: has ended its part" for rank in sorted(self.outcomes)),
            f"in run {self.job}; to play that one: {again}",
        ]
        raise NoVerdictError("\n  ".join(lines))

    @override
    def _has_fault(self) -> bool:
        # A rank that raised because a peer is gone tells nothing about that peer.
        return any(not each.is_aftershock for each in self._failed())

    @override
    def _is_over(self, findings: dict[int, SilenceKind]) -> bool:
        return bool(self.lost()) or super()._is_over(findings)

    @override
    def _receive(self, patience_seconds: float) -> bool:
        pause = _FIRST_PAUSE_SECONDS
        began = looked = time.monotonic()
        while time.monotonic() - began < patience_seconds:
            if self._take_outcomes():
                return True
            if time.monotonic() - looked > _LOOK_SECONDS:
                looked = time.monotonic()
                self._note_ends()
                looks = [self.processes[rank].look() for rank in self.pending()]
                if self.died or None in looks:
                    return False
            time.sleep(pause)
            pause = min(2 * pause, _LAST_PAUSE_SECONDS)
        return False

    @override
    def _ask(self, seconds: float) -> None:
        self._note_ends()
        signs = {rank: self.processes[rank].look() for rank in self.pending()}
        self.statuses = {
            rank: sign.status
            for rank, sign in signs.items()
            if sign is not None and sign.job == self.job
        }

    def _take_outcomes(self) -> bool:
        keys = {rank: f"outcome/{self.job}/{rank}" for rank in self.pending()}
        arrived = [rank for rank, key in keys.items() if self.store.check([key])]
        for rank in arrived:
            self.outcomes[rank] = unpack_outcome(self.store.get(keys[rank]))
        return bool(arrived)

    def _note_ends(self) -> None:
        ends = {rank: self.processes[rank].end() for rank in self.pending()}
        self.died.update({rank: end for rank, end in ends.items() if end is not None})
