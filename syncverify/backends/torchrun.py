"""Ranks are the processes that torchrun started: real GPUs over NCCL, or gloo.

Rank 0 leads: it draws scenarios, announces each in torchrun's store, plays its own part
and gathers the others'. The other ranks follow. Every scenario gets process groups of
its own, so one that fails leaves nothing behind; one that hangs ends the whole job,
since a GPU that waits in a collective cannot be called back.
"""

from __future__ import annotations

import contextlib
import json
import os
import pickle
import threading
from datetime import timedelta
from typing import Literal

import torch
import torch.distributed as dist

from syncverify.backends.faults import answers_fault, stall_fault
from syncverify.backends.messages import Answer, unpack_result
from syncverify.backends.process_rank import Membership, play_rank
from syncverify.errors import (
    EnvironmentNotSupportedError,
    InternalError,
    SubjectError,
    UsageError,
)
from syncverify.recorder import Recorder
from syncverify.run import RankRun, Run
from syncverify.scenario import Scenario
from syncverify.subject import Subject

# NCCL needs seconds to build communicators; a scenario takes milliseconds.
HANG_TIMEOUT_SECONDS = 60.0
_FOLLOW_TIMEOUT = timedelta(days=1)  # torchrun ends followers whose leader is gone


class TorchrunBackend:
    """Plays scenarios on the processes of a torchrun job.

    Attributes:
        name: The transport.
        rank: This process's rank; 0 leads.
        world_size: Number of processes.
        is_lost: Whether some rank hangs, so that nothing more can be played.

    Args:
        transport: `nccl` with one GPU per rank, or `gloo` on CPU.
        hang_timeout_seconds: How long a scenario may take on any rank.
    """

    def __init__(
        self,
        transport: Literal["nccl", "gloo"],
        *,
        hang_timeout_seconds: float = HANG_TIMEOUT_SECONDS,
    ) -> None:
        self.name = transport
        self._hang_timeout_seconds = hang_timeout_seconds
        self._store, self.rank, self.world_size = next(dist.rendezvous("env://"))
        # A client of the store serves one call at a time, and rank 0 waits for answers
        # while it plays.
        self._player_store = self._store.clone()
        self._device = _device(transport)
        self.is_lost = False
        self._num_jobs = 0

    def run(self, scenario: Scenario, subject: Subject) -> Run:
        """Lead: play a scenario on the first ranks of the job.

        Args:
            scenario: What to play; its world is at most the job's.
            subject: The synchronizer under test, the same on every process.

        Returns:
            What came out.

        Raises:
            SubjectError: What the factory made lacks a part of the subject API.
            InternalError: The harness failed on some rank.
            UsageError: The scenario has more ranks than the job.
        """
        if scenario.mesh.num_ranks > self.world_size:
            raise UsageError(
                f"expected ranks <= {self.world_size}, the torchrun job's, got a scenario "
                f"of {scenario.mesh.num_ranks}"
            )
        self._num_jobs += 1
        number = self._num_jobs
        self._store.set(f"job/{number}", json.dumps(scenario.to_json()))
        own = threading.Thread(
            target=self._play_and_answer, args=(number, scenario, subject), daemon=True
        )
        own.start()  # on a thread of its own, so that this one can give it up
        answers = self._gather(number, scenario.mesh.num_ranks)
        results = tuple(unpack_result(a.result) if a else RankRun() for a in answers)
        absent = tuple(rank for rank, answer in enumerate(answers) if answer is None)
        fault = answers_fault({r: a for r, a in enumerate(answers) if a is not None})
        if fault is None and absent:
            fault = stall_fault("never_returns", absent, ())
        self.is_lost = bool(absent)
        return Run(self.name, results, fault, lost_backend=self.is_lost)

    def follow(self, subject: Subject) -> None:
        """Play the leader's scenarios until it says that it is done."""
        while True:
            self._num_jobs += 1
            key = f"job/{self._num_jobs}"
            self._store.wait([key], _FOLLOW_TIMEOUT)
            announced = json.loads(self._store.get(key))
            if announced is None:
                return
            scenario = Scenario.from_json(announced)
            if self.rank < scenario.mesh.num_ranks:
                self._play_and_answer(self._num_jobs, scenario, subject)

    def close(self) -> None:
        """Tell the followers that there is nothing more to play."""
        if self.rank == 0:
            self._store.set(f"job/{self._num_jobs + 1}", json.dumps(None))

    def _gather(self, number: int, count: int) -> list[Answer | None]:
        """Collect the ranks' answers, None from those that did not answer in time."""
        keys = [f"answer/{number}/{rank}" for rank in range(count)]
        with contextlib.suppress(
            dist.DistStoreError
        ):  # a timeout; who answered shows below
            self._store.wait(keys, timedelta(seconds=self._hang_timeout_seconds))
        return [self._answer(key) if self._store.check([key]) else None for key in keys]

    def _answer(self, key: str) -> Answer:
        answer: Answer = pickle.loads(self._store.get(key))
        if answer.usage_error is not None:
            raise SubjectError(answer.usage_error)
        if answer.harness_error is not None:
            raise InternalError(f"{key}:\n{answer.harness_error}")
        return answer

    def _play_and_answer(
        self, number: int, scenario: Scenario, subject: Subject
    ) -> None:
        if self._device.type == "cuda":
            torch.cuda.set_device(self._device)
        membership = Membership(
            number=number,
            transport=self.name,
            store=self._player_store,
            rank=self.rank,
            world_size=scenario.mesh.num_ranks,
            timeout=timedelta(seconds=self._hang_timeout_seconds),
        )
        answer = play_rank(
            membership, scenario, subject, device=self._device, recorder=Recorder()
        )
        self._player_store.set(f"answer/{number}/{self.rank}", pickle.dumps(answer))


def _device(transport: str) -> torch.device:
    if transport == "gloo":
        return torch.device("cpu")
    local_rank = int(os.environ["LOCAL_RANK"])
    count = torch.cuda.device_count()
    if local_rank >= count:
        raise EnvironmentNotSupportedError(
            f"the nccl backend needs one GPU per process: local rank {local_rank} of this "
            f"machine has none (it has {count}); lower --nproc-per-node"
        )
    return torch.device("cuda", local_rank)
