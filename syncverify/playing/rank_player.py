"""The player of a rank in a torchrun job: a thread that plays scenarios one after another."""

import contextlib
import functools
import threading
from dataclasses import replace

import torch
import torch.distributed as dist

from syncverify.playing.messages import JobOutcome, pack, unpack_result
from syncverify.playing.process_rank import RankPart, Seat, play_rank
from syncverify.playing.rank_groups import KeptTransports
from syncverify.playing.torchrun_ranks import Pulse
from syncverify.scenario.scenario import Scenario
from syncverify.subjects.subject import Subject
from syncverify.trace.recorder import Recorder
from syncverify.trace.run import RankRun

# Time in which a rank ends its groups, or hears of a peer's fault from its transport.
GRACE_SECONDS = 5.0
# For all threads but the main one, which says that the store is gone.
IF_THE_STORE_LIVES = contextlib.suppress(dist.DistError)
_WATCH_SECONDS = 0.2


class RankPlayer:
    """Plays on a thread: the main thread can stop waiting, and hears the user's Ctrl-C."""

    def __init__(self, seat: Seat) -> None:
        # A client of the store serves one call at a time, so each thread has its own.
        self._seat = replace(seat, store=seat.store.clone())
        self._watch_store = seat.store.clone()
        self._pulse = Pulse(seat.store.clone(), seat.rank)
        self._kept = KeptTransports()
        self._epoch = 0
        self._aborted_job = 0
        self._thread = threading.Thread()

    @property
    def is_playing(self) -> bool:
        """Tell whether the thread plays, or ends the groups of a scenario that it has played."""
        return self._thread.is_alive()

    def play(self, job: int, epoch: int, scenario: Scenario, subject: Subject) -> None:
        """Start to play a scenario, once the groups of the one before have ended.

        An epoch ends with a run that may have left a collective without a peer. Connections are
        made anew after each.
        """
        self.join()
        if epoch != self._epoch:
            self._kept.drop()
            self._epoch = epoch
        self._thread = threading.Thread(
            target=self._play_and_tell, args=(job, scenario, subject), daemon=True
        )
        self._thread.start()
        watched = job, self._thread
        threading.Thread(target=self._watch, args=watched, daemon=True).start()

    def join(self, seconds: float | None = None) -> None:
        """Wait until the groups of the last scenario have ended, for some seconds at most."""
        if self._thread.ident is not None:
            self._thread.join(seconds)

    def close(self, seconds: float) -> bool:
        """Drop kept transports; return False if groups have not ended in some seconds."""
        self.join(seconds)
        if self.is_playing:
            return False
        self._kept.drop()  # torch warns of transports that nobody ended
        return True

    def _play_and_tell(self, job: int, scenario: Scenario, subject: Subject) -> None:
        if self._seat.device.type == "cuda":
            torch.cuda.set_device(self._seat.device)
        recorder = Recorder()
        self._pulse.play(job, recorder)
        part = RankPart(job, self._seat, scenario, subject, recorder)
        play_rank(part, functools.partial(self._tell, job), self._kept)

    def _tell(self, job: int, outcome: JobOutcome) -> None:
        if job == self._aborted_job:  # an aborted collective leaves any values
            seen = RankRun(trace=unpack_result(outcome.result).trace)
            outcome = replace(outcome, result=pack(seen))
        with IF_THE_STORE_LIVES:
            store, rank = self._seat.store, self._seat.rank
            store.set(f"outcome/{job}/{rank}", pack(outcome))
            if outcome.is_failure:
                store.set(f"fault/{job}", "")

    def _watch(self, job: int, player: threading.Thread) -> None:
        """End the collectives of this rank some time after a peer has failed.

        gloo tells a rank that its peer is gone, and NCCL does not.
        """
        with IF_THE_STORE_LIVES:
            while player.is_alive() and not self._watch_store.check([f"fault/{job}"]):
                player.join(_WATCH_SECONDS)
        player.join(GRACE_SECONDS)
        if player.is_alive():
            self._aborted_job = job
            self._kept.abort()
