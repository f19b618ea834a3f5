"""The `nccl` backend, and `gloo` under torchrun: ranks are the processes of a torchrun job.

| rank | part |
|---|---|
| 0, the leader | draws scenarios, announces each in torchrun's store, plays its rank, gathers all outcomes |
| others, the followers | play each announced scenario |

Every scenario gets new process groups, so a scenario that fails leaves nothing behind. A
scenario that hangs ends the whole job: a GPU that waits in a collective cannot be stopped.
"""

from __future__ import annotations

import contextlib
import functools
import json
import threading
from datetime import timedelta
from typing import Literal

import torch
import torch.distributed as dist

from syncverify.backends.announcement import announce
from syncverify.backends.faults import outcomes_fault, stall_fault
from syncverify.backends.messages import (
    JobOutcome,
    pack_outcome,
    unpack_outcome,
    unpack_result,
)
from syncverify.backends.process_rank import Membership, play_rank
from syncverify.backends.rank_device import own_device
from syncverify.errors import InternalError, SubjectError, UsageError
from syncverify.program.late_imports import import_dynamo
from syncverify.scenario.scenario import Scenario
from syncverify.subjects.subject import Subject
from syncverify.trace.recorder import Recorder
from syncverify.trace.run import RankRun, Run

# NCCL needs seconds to build communicators; a scenario takes milliseconds.
HANG_TIMEOUT_SECONDS = 60.0
_GRACE_SECONDS = 5.0
_FOLLOW_TIMEOUT = timedelta(days=1)  # torchrun ends the followers of a dead leader


class TorchrunBackend:
    """Plays scenarios on the processes of a torchrun job.

    Attributes:
        name: `nccl` or `gloo`: the transport.
        rank: Rank of this process; 0 is the leader.
        world_size: Number of processes.
        is_lost: Whether a rank hangs, so that no more scenario can be played.

    Args:
        transport: `nccl` with one GPU per rank, or `gloo` on CPU.
        hang_timeout_seconds: Longest time of a scenario on any rank.
    """

    def __init__(
        self,
        transport: Literal["nccl", "gloo"],
        *,
        hang_timeout_seconds: float = HANG_TIMEOUT_SECONDS,
    ) -> None:
        import_dynamo()
        self.name = transport
        self._hang_timeout_seconds = hang_timeout_seconds
        self.rank: int
        self.world_size: int
        self._store, self.rank, self.world_size = next(dist.rendezvous("env://"))
        # A client of the store serves one call at a time. Rank 0 waits for outcomes and plays
        # at once, so it needs two clients.
        self._player_store = self._store.clone()
        self._device = own_device(
            transport, self._store, rank=self.rank, world_size=self.world_size
        )
        self.is_lost = False
        self._num_jobs = 0
        self._player = threading.Thread()

    def run(self, scenario: Scenario, subject: Subject) -> Run:
        """Play a scenario, as the leader, on the first ranks of the job.

        Args:
            scenario: The scenario to play. It has at most as many ranks as the job.
            subject: The synchronizer under test, the same on every process.

        Returns:
            The run.

        Raises:
            SubjectError: The instance that the factory made lacks a part of the subject API.
            InternalError: The harness failed on some rank.
            UsageError: The scenario has more ranks than the job.
        """
        if scenario.mesh.num_ranks > self.world_size:
            raise UsageError(
                f"expected ranks <= {self.world_size}, the torchrun job's, got a scenario "
                f"of {scenario.mesh.num_ranks}"
            )
        announce(scenario)
        self._num_jobs += 1
        number = self._num_jobs
        self._store.set(f"job/{number}", json.dumps(scenario.to_json()))
        self._start_playing(number, scenario, subject)
        ranks = range(scenario.mesh.num_ranks)
        outcomes = self._gather(number, ranks)
        results = tuple(
            unpack_result(outcomes[rank].result) if rank in outcomes else RankRun()
            for rank in ranks
        )
        absent = tuple(rank for rank in ranks if rank not in outcomes)
        fault = outcomes_fault(outcomes)
        if fault is None and absent:
            fault = stall_fault("never_returns", absent, ())
        self.is_lost = bool(absent)
        return Run(self.name, results, fault, lost_backend=self.is_lost)

    def follow(self, subject: Subject) -> None:
        """Play each scenario that the leader announces, until the leader announces the end.

        `subject` equals the leader's.
        """
        while True:
            self._num_jobs += 1
            key = f"job/{self._num_jobs}"
            self._store.wait([key], _FOLLOW_TIMEOUT)
            announced = json.loads(self._store.get(key))
            if announced is None:
                self._await_player(_GRACE_SECONDS)
                return
            scenario = Scenario.from_json(announced)
            if self.rank < scenario.mesh.num_ranks:
                self._start_playing(self._num_jobs, scenario, subject)

    def close(self) -> None:
        """Announce the end to the followers."""
        if self.rank == 0:
            self._store.set(f"job/{self._num_jobs + 1}", json.dumps(None))

    def _gather(self, number: int, ranks: range) -> dict[int, JobOutcome]:
        """Collect the outcome of each rank; a rank that is late has none."""
        keys = {rank: f"outcome/{number}/{rank}" for rank in ranks}
        # `wait` raises after the timeout; the check below finds the ranks without an
        # outcome.
        with contextlib.suppress(dist.DistStoreError):
            patience = timedelta(seconds=self._hang_timeout_seconds)
            self._store.wait([*keys.values()], patience)
        return {
            rank: self._outcome(key)
            for rank, key in keys.items()
            if self._store.check([key])
        }

    def _outcome(self, key: str) -> JobOutcome:
        outcome = unpack_outcome(self._store.get(key))
        if outcome.usage_error is not None:
            raise SubjectError(outcome.usage_error)
        if outcome.harness_error is not None:
            raise InternalError(f"{key}:\n{outcome.harness_error}")
        return outcome

    def _start_playing(self, number: int, scenario: Scenario, subject: Subject) -> None:
        """Play on a thread: the main thread can stop waiting, and hears the user's Ctrl-C.

        The thread of the scenario before has told its outcome, and may still end its groups.
        """
        self._await_player()
        self._player = threading.Thread(
            target=self._play_and_report, args=(number, scenario, subject), daemon=True
        )
        self._player.start()

    def _await_player(self, timeout_seconds: float | None = None) -> None:
        if self._player.ident is not None:
            self._player.join(timeout_seconds)

    def _play_and_report(
        self, number: int, scenario: Scenario, subject: Subject
    ) -> None:
        if self._device.type == "cuda":
            torch.cuda.set_device(self._device)
        membership = Membership(
            number=number,
            transport=self.name,
            store=self._player_store,
            rank=self.rank,
            # NCCL ends the process at this timeout. So the leader's is over first, and the
            # leader gives the verdict.
            timeout=timedelta(seconds=2 * self._hang_timeout_seconds),
        )
        play_rank(
            membership,
            scenario,
            subject,
            device=self._device,
            recorder=Recorder(),
            tell=functools.partial(self._tell, number),
        )

    def _tell(self, number: int, outcome: JobOutcome) -> None:
        self._player_store.set(f"outcome/{number}/{self.rank}", pack_outcome(outcome))
