"""The process of one rank of a script."""

from __future__ import annotations

import contextlib
import signal
import traceback
from dataclasses import dataclass
from unittest.mock import patch

import torch

from syncverify.errors import InternalError, RunEndedError, SyncverifyError
from syncverify.faces.scripts.kept_warnings import warnings_kept
from syncverify.faces.scripts.script import RankJob, take_job
from syncverify.faces.simulation.playing import call_on_rank
from syncverify.faces.simulation.process_calls import calls_on_ranks
from syncverify.faces.simulation.program import SimulatedProgram
from syncverify.late_imports import import_dynamo
from syncverify.playing.faults import raised_fault
from syncverify.playing.program.exact_arithmetic import exact_arithmetic
from syncverify.playing.program.subject_error import SubjectRaisedError
from syncverify.processes.wire import Wire
from syncverify.sim.apart.messages import Begun, RankEnded
from syncverify.sim.apart.rank_machine import RankMachine, rank_machine
from syncverify.sim.process_wide.rank_variables import one_machine
from syncverify.sim.turns.refusals import OWN_THREAD, Refusals, refusal
from syncverify.trace.records import Moment
from syncverify.trace.run import Fault
from syncverify.trace.source_files import naming_torch


@dataclass(frozen=True, slots=True)
class CameTo:
    """The outcome of a script on a rank that nothing ended from outside.

    Attributes:
        fault: The exception of the script; None if it returned.
        internal: A traceback of the machine's own; "" if it is in order.
    """

    fault: Fault | None = None
    refused: str = ""
    internal: str = ""

    @property
    def is_failure(self) -> bool:
        """Tell whether the script did not reach its end."""
        return bool(self.fault or self.refused or self.internal)


# Processes that a rank starts are no ranks: they find neither the machine nor its GPUs.
_NO_SPAWN = patch.object(
    torch.multiprocessing,
    "spawn",
    refusal("ranks that a script spawns; start them from outside, as torchrun does"),
)


def main(wire: Wire) -> None:
    """Run the script of the job that comes on a wire, and send its outcome."""
    torch.set_num_threads(1)
    import_dynamo()
    job = take_job(wire)
    job.set_variables()
    with (
        one_machine(job.num_ranks),
        rank_machine(wire, job.place) as machine,
        warnings_kept() as kept,
    ):
        machine.recorder.moment = Moment("", 0)
        signal.signal(signal.SIGINT, machine.turns.interrupt)
        signal.pthread_sigmask(signal.SIG_UNBLOCK, {signal.SIGINT})
        wire.send(Begun())
        came_to: CameTo | None = None
        with contextlib.suppress(RunEndedError):  # the signal may come late
            came_to = _unless_refused(job, machine)
        signal.signal(signal.SIGINT, signal.SIG_IGN)
        machine.recorder.finish()
        wire.send(
            RankEnded(
                came_to,
                machine.recorder.trace,
                machine.world.mismatch,
                machine.turns.stack,
                tuple(machine.turns.updates),
                tuple(kept),
            )
        )


def _unless_refused(job: RankJob, machine: RankMachine) -> CameTo | None:
    refusals = Refusals("sim", lambda: None, OWN_THREAD)
    with refusals.of_the_process():
        came_to = _come_to(job, machine)
    match refusals.first:
        case None:
            return came_to
        case InternalError() as own:
            return CameTo(internal=f"rank {job.rank}: {own}")
        case refused:
            return CameTo(refused=str(refused))


def _come_to(job: RankJob, machine: RankMachine) -> CameTo | None:
    """Run the script; return None if the run was ended from outside."""
    setup = SimulatedProgram(
        lambda: job.script.run(), job.num_ranks, job.device, names_torch=job.names_torch
    )
    is_eager = torch.compiler.set_stance("force_eager")
    calls, named = calls_on_ranks(machine.turns), naming_torch(is_on=job.names_torch)
    try:
        with exact_arithmetic(), is_eager, calls, named, _NO_SPAWN:
            call_on_rank(setup, job.rank, machine.recorder)
    except RunEndedError:
        return None
    except SubjectRaisedError as error:
        return _raised(error, job.rank)
    except SyncverifyError as error:
        return CameTo(refused=str(error))
    except BaseException:  # noqa: BLE001  # told as a fault of the machine
        return CameTo(internal=traceback.format_exc())
    return CameTo()


def _raised(error: SubjectRaisedError, rank: int) -> CameTo:
    try:
        return CameTo(fault=raised_fault(error, rank))
    except InternalError as own:
        return CameTo(internal=str(own))
