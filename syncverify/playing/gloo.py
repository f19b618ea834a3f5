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

from collections.abc import Iterable
from dataclasses import dataclass

import torch.distributed as dist

from syncverify.errors import InternalError
from syncverify.playing.announcement import announce
from syncverify.playing.workers import WorkerGathering, WorkerPool
from syncverify.processes.silence import HANG_TIMEOUT_SECONDS
from syncverify.scenario.scenario import Scenario
from syncverify.subjects.subject import Subject
from syncverify.trace.run import Fault, Run

# Signals that come from outside as well: from a user, a supervisor, the kernel out of memory.
_FROM_OUTSIDE = {"signal 9", "signal 15"}
_MAX_ATTEMPTS = 3
_MAX_UNEXPLAINED = 3


class GlooBackend:
    """Plays scenarios on real processes, with Note [Patience with processes]."""

    name = "gloo"

    def __init__(self, *, hang_timeout_seconds: float = HANG_TIMEOUT_SECONDS) -> None:
        self._hang_timeout_seconds = hang_timeout_seconds
        self._pool = WorkerPool()
        self._store: dist.TCPStore | None = None
        self._num_jobs = 0
        self._unexplained: list[str] = []

    def run(self, scenario: Scenario, subject: Subject) -> Run:
        """Play a scenario on one worker process per rank."""
        announce(scenario)
        doubts: list[Doubt] = []
        while len(doubts) < _MAX_ATTEMPTS:
            gathering = self._gathered(scenario, subject)
            is_used_up = True
            try:
                gathering.raise_errors()
                fault = gathering.fault()
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
        self._num_jobs += 1
        workers = self._pool.play(scenario, subject, self._num_jobs, self._store.port)
        return WorkerGathering(workers, self._hang_timeout_seconds, job=self._num_jobs)

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


@dataclass(frozen=True, slots=True)
class Doubt:
    """A reason why a loss may not be the scenario's fault."""

    words: str
    # How often the same loss has to come before, in other processes, until it is the
    # scenario's fault.
    num_before: int = 1


def doubt_about(fault: Fault | None, gathering: WorkerGathering) -> Doubt | None:
    """Say why a process that was lost, or a connection, may not be the scenario's fault.

    There is no doubt without a loss, nor if the loss is the scenario's: the process was new, it had
    taken the job, and nothing outside of it ends or stops it like that.
    """
    if fault is None:
        return None
    # A rank raised what a lost peer causes, and no peer was lost: beside other jobs of gloo, a
    # stranger may connect to a port that was used before.
    outcomes = [gathering.outcomes.get(rank) for rank in fault.ranks]
    is_broken = any(each is not None and each.is_aftershock for each in outcomes)
    if fault.kind == "raised" and is_broken:
        # Jobs of gloo that end beside this one may break two connections in a row.
        words = "a connection of gloo broke, though no process was lost"
        return Doubt(words, num_before=2)
    # All ranks wait and none is at fault, as where bytes of gloo are lost.
    if fault.kind == "deadlock" and len(fault.ranks) == len(gathering.processes):
        return Doubt("no rank went on")
    # A rank that answers was ended in the middle of torch or of the harness. After a template
    # was killed, a new process imports modules of torch on a busy machine.
    if fault.kind == "never_returns" and not fault.details:
        return Doubt(f"{fault.summary}, in no line of the subject")
    lost = {*gathering.died, *gathering.silent()}
    for rank in fault.ranks:
        worker = gathering.processes[rank]
        may_be_ended = gathering.died.get(rank) in _FROM_OUTSIDE
        has_begun = worker.num_jobs == 1 and rank in gathering.started
        is_proven = has_begun and not may_be_ended and not worker.is_stopped()
        if rank in lost and not is_proven:
            words = f"the process of rank {rank} {gathering.end_of(rank)}"
            # A random killer hits two processes in a row now and then.
            return Doubt(words, num_before=2 if may_be_ended else 1)
    return None
