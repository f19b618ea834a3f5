"""The `gloo` backend: ranks are worker processes with a real gloo process group.

Note [A process may end for any reason]
    A process that dies, is stopped or does not answer is a fault of the subject only if
    nothing else explains that: an earlier scenario may have left a thread behind, and a user
    or the kernel ends processes too. So the scenario is played again, in new processes in
    the place of those. The same fault of the same ranks is then the scenario's; SIGKILL and
    SIGTERM, which come from outside as well, have to end it a third time. A scenario
    that ends is judged by that run, with a remark. Processes that end again and again,
    without a scenario that explains it, are an error: a verdict would mean nothing.

Note [A collective without a peer]
    The end of a gloo group joins the threads that play its collectives. A collective whose
    peers never came keeps such a thread for the whole timeout of the group, and the group
    may end when Python collects it: in the middle of a later scenario, whose rank then
    seems to hang. So no process plays on after a fault, or after collectives that do not
    match.

    Source:
        `~ProcessGroupGloo` in torch/csrc/distributed/c10d/ProcessGroupGloo.cpp.
"""

from __future__ import annotations

from collections.abc import Iterable

import torch.distributed as dist

from syncverify.errors import InternalError
from syncverify.playing.messages import Job, announce
from syncverify.playing.packed_subject import pack_subject
from syncverify.playing.pool import WorkerPool
from syncverify.playing.process_faults import Doubt, doubt_about, processes_fault
from syncverify.playing.worker_gathering import WorkerGathering
from syncverify.processes.descriptors import require_descriptors
from syncverify.processes.silence import HANG_TIMEOUT_SECONDS
from syncverify.scenario.scenario import Scenario
from syncverify.subjects.subject import Subject
from syncverify.trace.run import Run

_MAX_ATTEMPTS = 3
_MAX_UNEXPLAINED = 3


class GlooBackend:
    """Plays scenarios on real processes.

    Args:
        hang_timeout_seconds: Time without progress of any rank after which the run is
            ended; see Note [Patience with processes].

    Raises:
        EnvironmentNotSupportedError: The system allows too few open files.
    """

    name = "gloo"

    def __init__(self, *, hang_timeout_seconds: float = HANG_TIMEOUT_SECONDS) -> None:
        require_descriptors()
        self._hang_timeout_seconds = hang_timeout_seconds
        self._pool = WorkerPool()
        self._store: dist.TCPStore | None = None
        self._num_jobs = 0
        self._unexplained: list[str] = []

    def run(self, scenario: Scenario, subject: Subject) -> Run:
        """Play a scenario on one worker process per rank.

        Raises:
            EnvironmentNotSupportedError: The subject asks for a GPU that gloo does not have.
            InternalError: The harness failed in a worker, or workers end by themselves.
            SubjectError: The instance that the factory made lacks a part of the subject API.
        """
        announce(scenario)
        doubts: list[Doubt] = []
        while len(doubts) < _MAX_ATTEMPTS:
            gathering = self._gathered(scenario, subject)
            is_used_up = True
            try:
                gathering.raise_errors()
                fault = processes_fault(gathering)
                doubt = doubt_about(fault, gathering)
                is_used_up = gathering.may_leave_collectives()
            finally:
                if is_used_up:
                    self._discard(gathering)
            if doubt is None or (
                doubts.count(doubt) >= doubt.num_before and gathering.has_started(fault)
            ):
                # Ranks that disagree may abort a process, by their timing: a run with a
                # fault explains the ends before it.
                unexplained = doubts if fault is None else ()
                remarks = self._remarks([each.words for each in unexplained])
                return Run(self.name, gathering.rank_runs(), fault, remarks=remarks)
            doubts.append(doubt)
        raise InternalError(
            f"worker processes end by themselves, {_MAX_ATTEMPTS} times in one scenario: "
            f"{'; '.join(each.words for each in doubts)}"
        )

    def _gathered(self, scenario: Scenario, subject: Subject) -> WorkerGathering:
        """Play on workers that are connected: on a busy machine that may take some attempts."""
        broken = ""
        for _ in range(_MAX_ATTEMPTS):
            gathering = self._start(scenario, subject)
            gathering.gather()
            broken = gathering.broken_connection()
            if not broken:
                return gathering
            self._discard(gathering)
        raise InternalError(
            f"worker processes do not connect, {_MAX_ATTEMPTS} times in one scenario: {broken}"
        )

    def close(self) -> None:
        """End the workers."""
        self._pool.close()

    def _start(self, scenario: Scenario, subject: Subject) -> WorkerGathering:
        if self._store is None:
            self._store = dist.TCPStore(
                "127.0.0.1", 0, is_master=True, wait_for_workers=False
            )
        workers = self._pool.take(scenario.mesh.num_ranks)
        packed, port = pack_subject(subject), self._store.port
        self._num_jobs += 1
        gathering = WorkerGathering(
            workers, self._hang_timeout_seconds, job=self._num_jobs
        )
        for rank in range(len(workers)):
            job = Job(scenario.to_json(), packed, rank, self._num_jobs, port)
            gathering.send(rank, job)
        return gathering

    def _discard(self, gathering: WorkerGathering) -> None:
        for rank in range(len(gathering.processes)):
            self._pool.discard(rank)

    def _remarks(self, doubts: Iterable[str]) -> tuple[str, ...]:
        """Say which processes ended without a fault of the scenario that they played."""
        remarks = tuple(
            f"{doubt}; played again in a new process, the scenario ended without that"
            for doubt in doubts
        )
        self._unexplained += remarks
        if len(self._unexplained) >= _MAX_UNEXPLAINED:
            raise InternalError(
                f"worker processes end by themselves, {len(self._unexplained)} times so far; "
                "something outside of this command ends them, or the subject leaves threads "
                f"behind that do: {'; '.join(self._unexplained)}"
            )
        return remarks
