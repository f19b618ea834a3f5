"""The `streams` backend: each rank is a process with simulated streams, and they take turns.

It plays subjects that keep state for a whole process, which ranks that are threads cannot, and
judges the order of their streams, which gloo cannot.

A rank plays on a thread of its own, as on `gloo`: torch keeps caches of DTensor's operators by
thread. A signal ends a rank that does not come back.
"""

import signal
import sys
import threading
import traceback
from contextlib import nullcontext, suppress
from dataclasses import replace
from types import FrameType

import torch

from syncverify.errors import InternalError, RunEndedError
from syncverify.late_imports import import_dynamo
from syncverify.playing.announcement import announce
from syncverify.playing.faults import hub_fault
from syncverify.playing.gpu_needs import refusing_what_needs_gpus
from syncverify.playing.messages import (
    Job,
    JobOutcome,
    Ready,
    pack,
    unpack_result,
    unpack_subject,
)
from syncverify.playing.process_rank import outcome_of
from syncverify.playing.program.exact_arithmetic import exact_arithmetic
from syncverify.playing.program.rank_program import play_part
from syncverify.playing.program.warnings_once import show_warnings_once
from syncverify.playing.sim import failures_of
from syncverify.playing.workers import WorkerPool
from syncverify.processes.silence import HANG_TIMEOUT_SECONDS
from syncverify.processes.wire import Wire
from syncverify.scenario.scenario import Scenario
from syncverify.sim.apart.hub import HeardRank, Hub
from syncverify.sim.apart.messages import Begun, RankEnded
from syncverify.sim.apart.rank_machine import RankMachine, RankPlace, rank_machine
from syncverify.sim.network.threaded_world import make_default_group
from syncverify.sim.process_wide.generators import unlikely_start
from syncverify.sim.process_wide.rank_variables import (
    missing_rank_variables,
    ranks_per_machine,
)
from syncverify.sim.process_wide.settings import restored_settings
from syncverify.sim.turns.refusals import Refusals
from syncverify.sim.turns.scheduler import interrupt_thread
from syncverify.subjects.subject import Subject
from syncverify.trace.run import RankRun, Run


class StreamsBackend:
    """Plays scenarios on simulated ranks that are processes."""

    name = "streams"

    def __init__(self) -> None:
        self._pool = WorkerPool(__name__)

    def run(self, scenario: Scenario, subject: Subject) -> Run:
        """Play a scenario on one process per rank."""
        announce(scenario)
        hub = Hub(self._pool.play(scenario, subject), HANG_TIMEOUT_SECONDS)
        is_used_up = True
        try:
            hub.run()
            outcomes = hub.outcomes()
            for outcome in outcomes:
                outcome.raise_usage_error()
                if outcome.harness_error is not None:
                    raise InternalError(outcome.harness_error)
            fault = hub_fault(hub, (each.fault for each in outcomes))
            is_used_up = fault is not None
        finally:
            if is_used_up:
                for rank in range(len(hub.ranks)):
                    self._pool.discard(rank)
        return Run(self.name, tuple(map(_rank_run, hub.ranks)), fault)

    def close(self) -> None:
        """End the processes."""
        self._pool.close()


def _rank_run(own: HeardRank) -> RankRun:
    came_to = own.ended and own.ended.came_to
    if came_to and came_to.result:
        return unpack_result(came_to.result)
    return RankRun(trace=own.trace)


class _Rank:
    """Plays one job."""

    def __init__(self, wire: Wire, job: Job) -> None:
        self._wire = wire
        self._job = job
        self._scenario = Scenario.from_json(job.scenario)
        self._machine: RankMachine | None = None
        self._result = RankRun()
        self.thread = threading.Thread(target=self._play, name=f"rank {job.rank}")

    def interrupt(self) -> None:
        """End the rank, and note where it stands."""
        frame = sys._current_frames().get(self.thread.ident or 0)  # documented
        if self._machine is not None and self.thread.is_alive():
            self._machine.turns.note_stack(frame)
            interrupt_thread(self.thread)

    def _play(self) -> None:
        try:
            subject = unpack_subject(self._job.subject)
        except Exception:  # noqa: BLE001  # reported as the harness's own fault
            broken = JobOutcome(harness_error=traceback.format_exc())
            self._wire.send(RankEnded(broken, []))
            return
        rank, size = self._job.rank, self._scenario.mesh.num_ranks
        needs = subject.capabilities
        gpu = rank % ranks_per_machine(size) if needs.device == "cuda" else None
        place = RankPlace(rank, size, needs.is_for_nccl, gpu)
        with rank_machine(self._wire, place) as machine:
            self._machine = machine
            self._wire.send(Begun())
            outcome: JobOutcome | None = None
            with suppress(RunEndedError):  # the signal may come late
                outcome = outcome_of(
                    lambda: self._play_scenario(subject, machine),
                    rank,
                    Refusals("streams", wake=lambda: None),
                    lambda: machine.turns.has_ended,
                )
            machine.recorder.finish()
            if torch.distributed.is_initialized():
                torch.distributed.destroy_process_group()
            result = pack(self._result)
            came_to = replace(outcome or JobOutcome(), result=result)
            self._wire.send(machine.ended(came_to))

    def _play_scenario(self, subject: Subject, machine: RankMachine) -> None:
        scenario, rank = self._scenario, self._job.rank
        machine.world.failures = failures_of(scenario.events)
        make_default_group(rank, scenario.mesh.num_ranks, machine.store)
        sees_gpus = subject.capabilities.device == "cuda"
        needs = refusing_what_needs_gpus() if sees_gpus else nullcontext()
        settings, variables = restored_settings(), missing_rank_variables()
        with unlikely_start(), exact_arithmetic(), settings, variables, needs:
            play_part(scenario, subject, rank, self._result, machine.recorder)


def main(wire: Wire) -> None:
    """Play the jobs that come on a wire."""
    playing: list[_Rank] = []

    def interrupt(_number: int, _frame: FrameType | None) -> None:
        for rank in playing:
            rank.interrupt()

    signal.signal(signal.SIGINT, interrupt)
    signal.pthread_sigmask(signal.SIG_UNBLOCK, {signal.SIGINT})
    torch.set_num_threads(1)
    show_warnings_once()
    import_dynamo()
    wire.send(Ready())
    with suppress(EOFError, OSError):  # the process that asks is gone
        while True:
            playing[:] = [_Rank(wire, wire.receive())]
            playing[0].thread.start()
            playing[0].thread.join()
