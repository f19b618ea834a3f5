"""Signs of life of the ranks of a torchrun job, in torchrun's store.

Note [Signs of life]
    The ranks of a job may be on other machines, where no kernel shows them. So
    a thread of each rank writes a sign of life once a second: a number, the status of the
    rank, the processor time that it has used, and the work of its descendants. A rank whose
    number stays the same has died, is stopped, keeps Python from running, or is cut off; from
    afar these look alike. Clocks of two machines are never compared: a reader counts the
    seconds since it saw another number.
"""

from __future__ import annotations

import contextlib
import os
import threading
import time

import torch.distributed as dist

from syncverify.playing.messages import SignOfLife, Status, pack, unpack_data
from syncverify.processes.process_state import LocalProcess, Work
from syncverify.processes.thread_demand import name_own_thread
from syncverify.trace.recorder import Recorder

_PERIOD_SECONDS = 1.0
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

    Args:
        store: A client of torchrun's store that no other thread uses.
    """

    def __init__(self, store: dist.Store, rank: int) -> None:
        self._store = store
        self._key = f"sign/{rank}"
        self._playing = (0, threading.current_thread(), Recorder())
        self._helpers = Helpers()
        threading.Thread(target=self._beat, name="signs of life", daemon=True).start()

    def play(self, job: int, recorder: Recorder) -> None:
        """Note that the calling thread plays a job."""
        self._playing = (job, threading.current_thread(), recorder)

    def _beat(self) -> None:
        name_own_thread()
        pause = threading.Event()
        number = 0
        with contextlib.suppress(dist.DistError):
            while True:
                number += 1
                sign = pack(self._sign(number))
                self._store.set(self._key, sign)  # type: ignore[arg-type]  # bytes too
                pause.wait(_PERIOD_SECONDS)

    def _sign(self, number: int) -> SignOfLife:
        job, player, recorder = self._playing
        used_seconds = time.process_time()
        helpers = self._helpers.look(used_seconds)
        status = Status.of(player, recorder)
        return SignOfLife(number, job, status, used_seconds, helpers)


class RemoteRank:
    """A rank of the job, as its signs of life show it.

    Args:
        patience_seconds: Time without a sign after which the rank is silent.
    """

    def __init__(
        self, store: dist.Store, rank: int, machine: str, patience_seconds: float
    ) -> None:
        self._store = store
        self._rank = rank
        self._machine = machine
        self._patience_seconds = patience_seconds
        self._last = _NONE_YET
        self._seen = time.monotonic()

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
