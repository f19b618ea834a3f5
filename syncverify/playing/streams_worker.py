"""The process of one rank of the `streams` backend: it plays scenario after scenario.

A rank plays on a thread of its own, as on `gloo`: torch keeps caches of DTensor's operators by
thread. A signal ends a rank that does not come back.
"""

from __future__ import annotations

import signal
import sys
import threading
import traceback
from contextlib import nullcontext, suppress
from dataclasses import dataclass, replace
from types import FrameType
from typing import Any

import torch

from syncverify.errors import (
    EnvironmentNotSupportedError,
    InternalError,
    RunEndedError,
    UsageError,
)
from syncverify.late_imports import import_dynamo
from syncverify.playing.failures import failures_of
from syncverify.playing.faults import raised_fault
from syncverify.playing.gpu_needs import refusing_what_needs_gpus
from syncverify.playing.messages import JobOutcome, Ready, stopped_by
from syncverify.playing.packed_outcomes import pack_result
from syncverify.playing.packed_subject import unpack_subject
from syncverify.playing.program.exact_arithmetic import exact_arithmetic
from syncverify.playing.program.modules import provide_layers
from syncverify.playing.program.rank_program import play
from syncverify.playing.program.subject_error import SubjectRaisedError
from syncverify.playing.program.warnings_once import show_warnings_once
from syncverify.processes.wire import Wire
from syncverify.scenario.scenario import Scenario
from syncverify.sim.apart.messages import Begun, RankEnded
from syncverify.sim.apart.rank_machine import RankMachine, RankPlace, rank_machine
from syncverify.sim.network.communicator import BACKEND_NAME
from syncverify.sim.network.own_default_group import make_default_group
from syncverify.sim.process_wide.generators import unlikely_start
from syncverify.sim.process_wide.rank_variables import (
    missing_rank_variables,
    ranks_per_machine,
)
from syncverify.sim.process_wide.settings import restored_settings
from syncverify.sim.turns.refusals import Refusals
from syncverify.sim.turns.scheduler import interrupt_thread
from syncverify.subjects.subject import Subject
from syncverify.trace.run import RankRun


@dataclass(frozen=True, slots=True)
class StreamsJob:
    """One rank's part of a scenario."""

    scenario: dict[str, Any]
    subject: bytes
    rank: int


class _Rank:
    """Plays one job."""

    def __init__(self, wire: Wire, job: StreamsJob) -> None:
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
            provide_layers(subject.capabilities)
        except Exception:  # noqa: BLE001  # reported as the harness's own fault
            broken = JobOutcome(harness_error=traceback.format_exc())
            self._wire.send(RankEnded(broken, []))
            return
        with rank_machine(self._wire, self._place(subject)) as self._machine:
            self._wire.send(Begun())
            outcome: JobOutcome | None = None
            with suppress(RunEndedError):  # the signal may come late
                outcome = self._unless_refused(subject, self._machine)
            self._end(self._machine, outcome)

    def _end(self, machine: RankMachine, outcome: JobOutcome | None) -> None:
        """Tell what came of the job."""
        machine.recorder.finish()
        if torch.distributed.is_initialized():
            torch.distributed.destroy_process_group()
        result = pack_result(self._result)
        ended = RankEnded(
            replace(outcome or JobOutcome(), result=result),
            machine.recorder.trace,
            machine.world.mismatch,
            machine.turns.stack,
            tuple(machine.turns.updates),
        )
        self._wire.send(ended)

    def _place(self, subject: Subject) -> RankPlace:
        rank, size = self._job.rank, self._scenario.mesh.num_ranks
        capabilities = subject.capabilities
        sees_gpus = capabilities.device == "cuda"
        return RankPlace(
            rank,
            size,
            capabilities.is_for_nccl,
            rank % ranks_per_machine(size) if sees_gpus else None,
        )

    def _unless_refused(
        self, subject: Subject, machine: RankMachine
    ) -> JobOutcome | None:
        refusals = Refusals("streams", wake=lambda: None)
        with refusals.of_the_process():
            outcome = self._outcome(subject, machine)
        if refusals.first is not None:  # whatever came of it
            return stopped_by(refusals.first)
        return outcome

    def _outcome(self, subject: Subject, machine: RankMachine) -> JobOutcome | None:
        """Play; return None if the run was ended from outside."""
        try:
            self._play_scenario(subject, machine)
        except SubjectRaisedError as error:
            return self._raised(error)
        except RunEndedError as error:
            raised = error.__cause__
            if isinstance(raised, SubjectRaisedError) and not machine.turns.has_ended:
                return self._raised(raised)
            return None
        except EnvironmentNotSupportedError as error:
            return JobOutcome(refusal=str(error))
        except UsageError as error:
            return JobOutcome(usage_error=str(error))
        except BaseException:  # noqa: BLE001  # reported as the harness's own fault
            return JobOutcome(harness_error=traceback.format_exc())
        return JobOutcome()

    def _raised(self, error: SubjectRaisedError) -> JobOutcome:
        try:
            return JobOutcome(fault=raised_fault(error, self._job.rank))
        except InternalError as own:
            return stopped_by(own)

    def _play_scenario(self, subject: Subject, machine: RankMachine) -> None:
        scenario, rank = self._scenario, self._job.rank
        machine.world.failures = failures_of(scenario.events)
        make_default_group(BACKEND_NAME, rank, scenario.mesh.num_ranks, machine.store)
        sees_gpus = subject.capabilities.device == "cuda"
        needs = refusing_what_needs_gpus() if sees_gpus else nullcontext()
        settings, variables = restored_settings(), missing_rank_variables()
        with unlikely_start(), exact_arithmetic(), settings, variables, needs:
            play(
                scenario,
                subject,
                rank=rank,
                device=torch.device("cpu"),
                result=self._result,
                recorder=machine.recorder,
            )


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
