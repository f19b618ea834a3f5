"""The backends of NCCL, and `gloo` under torchrun: ranks are processes of a torchrun job.

| rank | part |
|---|---|
| 0, the leader | draws scenarios, announces each in torchrun's store, plays its rank, gathers all outcomes |
| others, the followers | play each announced scenario that has their rank |

Every scenario gets new process groups, on connections that are made anew after a fault: see
Note [Kept transports]. A rank that fails tells the others, so that they stop waiting for it. A
scenario that hangs ends the whole job: a GPU that waits in a collective cannot be stopped.
The ranks may be on several machines: see Note [Signs of life]. All of them end with the exit
code of the leader, as torchrun on one machine knows nothing of the ends on others.
"""

import functools
import gc
import json
import os
import queue
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import replace
from datetime import timedelta

import torch
import torch.distributed as dist

from syncverify.errors import NoVerdictError, UsageError
from syncverify.late_imports import import_dynamo
from syncverify.playing.announcement import announce, token_of_a_death
from syncverify.playing.messages import JobOutcome, pack, unpack_result
from syncverify.playing.process_rank import RankPart, Seat, play_rank
from syncverify.playing.rank_groups import KeptTransports
from syncverify.playing.roll_call import call_roll, facts_about, own_device
from syncverify.playing.torchrun_ranks import Pulse, RemoteRank, StoreGathering
from syncverify.processes.owner_link import Ends, listen
from syncverify.replay_line import replay_line
from syncverify.scenario.scenario import Scenario
from syncverify.scenario.settings import NCCL_NAMES
from syncverify.subjects.subject import Subject
from syncverify.trace.recorder import Recorder
from syncverify.trace.run import RankRun, Run

# NCCL needs seconds to build communicators; a scenario takes milliseconds.
_HANG_TIMEOUT_SECONDS = 60.0
# A call of CUDA may keep Python from running for long.
_SILENCE_SECONDS = {"gloo": 15.0, **dict.fromkeys(NCCL_NAMES, 60.0)}
_POLL_SECONDS = 0.05
_FOLLOW_TIMEOUT = timedelta(days=1)
_FAREWELL_SECONDS = 3.0
_END = "null"
_STORE_IS_GONE = (
    "torchrun's store is gone: its process on the machine of rank 0 was ended"
)
# Time in which a rank ends its groups, or hears of a peer's fault from its transport.
GRACE_SECONDS = 5.0
# For all threads but the main one, which says that the store is gone.
IF_THE_STORE_LIVES = suppress(dist.DistError)
_WATCH_SECONDS = 0.2


class RankPlayer:
    """Plays as one rank, on a thread: the main thread can stop waiting, and hears Ctrl-C."""

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


class TorchrunBackend:
    """Plays scenarios on the processes of a torchrun job; rank 0 is the leader.

    The transport is a name of NCCL with one GPU per rank, or `gloo` on CPU. The subject has to be
    the same on all machines. Without progress of any rank a scenario is ended after a time; see
    Note [Patience with processes]. `call_roll` and `own_device` refuse ranks.
    """

    def __init__(
        self,
        transport: str,
        subject: Subject,
        *,
        hang_timeout_seconds: float = _HANG_TIMEOUT_SECONDS,
    ) -> None:
        import_dynamo()
        gc.freeze()  # `end_groups` looks at all other objects
        # torch would end this process when a peer aborts, or when a collective takes long.
        # The leader sees both, and gives a verdict.
        if transport in NCCL_NAMES:
            os.environ.setdefault("TORCH_NCCL_ASYNC_ERROR_HANDLING", "0")
            # cuBLAS reads the variable once. Two workspaces may change the order of sums.
            os.environ.setdefault("CUBLAS_WORKSPACE_CONFIG", ":4096:8")
        self.name = transport
        self._hang_timeout_seconds = hang_timeout_seconds
        self.rank: int
        self.world_size: int
        self._store, self.rank, self.world_size = next(dist.rendezvous("env://"))
        self._end_store = self._store.clone()  # for another thread
        # Whether a rank hangs or the store is gone, so that no more scenario can be played.
        self.is_lost = False
        self._num_jobs = 0
        listen(self._hear)
        place = {"rank": self.rank, "world_size": self.world_size}
        machines = call_roll(self._store, facts_about(subject), **place)
        self._device = own_device(transport, self._store, **place)
        self._ranks = [
            RemoteRank(self._store, rank, machine, _SILENCE_SECONDS[transport])
            for rank, machine in enumerate(machines)
        ]
        # NCCL ends the process at the timeout. The leader gathers for a few windows at most,
        # so it gives its verdict first.
        timeout = timedelta(seconds=10 * hang_timeout_seconds)
        seat = Seat(transport, self._store, self.rank, timeout, self._device)
        self._player = RankPlayer(seat)
        self._epoch = 0

    def run(self, scenario: Scenario, subject: Subject) -> Run:
        """Play a scenario, as the leader, on the first ranks of the job.

        Raises:
            UsageError: The scenario has more ranks than the job. See `raise_errors` and
                `fault_or_loss` as well.
        """
        with self._needing_the_store():
            num_ranks = scenario.mesh.num_ranks
            if num_ranks > self.world_size:
                raise UsageError(
                    f"expected ranks <= {self.world_size}, the torchrun job's, got a scenario "
                    f"of {num_ranks}"
                )
            announce(scenario)
            self._num_jobs += 1
            announced = {"epoch": self._epoch, "scenario": scenario.to_json()}
            self._store.set(f"job/{self._num_jobs}", json.dumps(announced))
            self._player.play(self._num_jobs, self._epoch, scenario, subject)
            ranks, job = self._ranks[:num_ranks], self._num_jobs
            gathering = StoreGathering(
                ranks, self._hang_timeout_seconds, store=self._store, job=job
            )
            gathering.gather()
            self.is_lost = bool(gathering.pending())
            if gathering.may_leave_collectives():
                self._epoch += 1
            gathering.raise_errors()
            token, contract = token_of_a_death(scenario), subject.contract_choice
            line = replay_line(token, subject.name, self.name, contract)
            fault = gathering.fault_or_loss(line)
            return Run(self.name, gathering.rank_runs(), fault, device=self._device)

    def follow(self, subject: Subject) -> int:
        """Play what the leader announces; return its exit code, or raise NoVerdictError if it is gone."""
        with self._needing_the_store():
            announced = queue.Queue[str]()
            threading.Thread(
                target=self._listen, args=(announced.put,), daemon=True
            ).start()
            # This thread waits for the queue alone, so that it hears the user's Ctrl-C.
            while (text := announced.get()) not in {"", _END}:
                job = json.loads(text)
                scenario, epoch = Scenario.from_json(job["scenario"]), job["epoch"]
                self._num_jobs += 1
                if self.rank >= scenario.mesh.num_ranks:
                    continue
                # The groups of the scenario before end first, unless the job ends.
                while self._player.is_playing and announced.empty():
                    self._player.join(_POLL_SECONDS)
                if not self._player.is_playing:
                    announce(scenario)
                    self._player.play(self._num_jobs, epoch, scenario, subject)
            if text != _END:
                self.is_lost = True
                raise NoVerdictError(_STORE_IS_GONE)
            code = int(self._store.get("end/0"))
            self._hear(Ends(code))
            self.close()
            return code

    def close(self) -> None:
        """Wait a little until this rank has ended its groups.

        The other ranks hear of the end with its exit code, when the owner gets it.
        """
        self.is_lost = not self._player.close(0 if self.is_lost else GRACE_SECONDS)

    @contextmanager
    def _needing_the_store(self) -> Iterator[None]:
        """Explain the loss of the store, which ends with the agent of rank 0's machine."""
        try:
            yield
        except dist.DistError as error:
            self.is_lost = True  # nothing waits for the rank: torchrun ends it soon
            raise NoVerdictError(_STORE_IS_GONE) from error

    def _listen(self, put: Callable[[str], None]) -> None:
        """Hand on what the leader announces, and "" if the leader is gone."""
        store = self._store.clone()
        number, text = 1, ""
        try:
            while text != _END:
                store.wait([f"job/{number}"], _FOLLOW_TIMEOUT)
                text = store.get(f"job/{number}").decode()
                put(text)
                number += 1
        except dist.DistError:
            put("")

    def _hear(self, word: object) -> None:
        """Tell the other ranks the exit code of this one, on any thread."""
        if not isinstance(word, Ends):
            return
        with IF_THE_STORE_LIVES:
            self._end_store.set(f"end/{self.rank}", str(word.code))
            if self.rank != 0:
                return
            self._end_store.set(f"job/{self._num_jobs + 1}", _END)
            # All followers get the code: the store may end with rank 0.
            deadline = time.monotonic() + _FAREWELL_SECONDS
            keys = [f"end/{rank}" for rank in range(self.world_size)]
            while time.monotonic() < deadline and not self._end_store.check(keys):
                time.sleep(_POLL_SECONDS)
