"""The process of one rank of a script."""

from __future__ import annotations

import contextlib
import signal
from unittest.mock import patch

import torch

from syncverify.errors import RunEndedError
from syncverify.faces.scripts.script import RankJob, warnings_kept
from syncverify.faces.simulation.process_calls import calls_on_ranks
from syncverify.faces.simulation.program import SimulatedProgram
from syncverify.late_imports import import_dynamo
from syncverify.playing.messages import JobOutcome
from syncverify.playing.process_rank import outcome_of
from syncverify.playing.program.exact_arithmetic import exact_arithmetic
from syncverify.processes.wire import Wire
from syncverify.sim.apart.messages import Begun
from syncverify.sim.apart.rank_machine import RankMachine, rank_machine
from syncverify.sim.process_wide.rank_variables import one_machine
from syncverify.sim.turns.refusals import OWN_THREAD, Refusals, refusal
from syncverify.trace.records import Moment
from syncverify.trace.run import RankRun
from syncverify.trace.source_files import naming_torch

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
    job: RankJob = wire.receive()
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
        came_to: JobOutcome | None = None
        with contextlib.suppress(RunEndedError):  # the signal may come late
            came_to = outcome_of(
                lambda: _run(job, machine),
                job.rank,
                Refusals("sim", lambda: None, OWN_THREAD),
                lambda: machine.turns.has_ended,
            )
        signal.signal(signal.SIGINT, signal.SIG_IGN)
        machine.recorder.finish()
        wire.send(machine.ended(came_to, kept))


def _run(job: RankJob, machine: RankMachine) -> None:
    setup = SimulatedProgram(
        lambda: job.script.run(), job.num_ranks, job.device, names_torch=job.names_torch
    )
    is_eager = torch.compiler.set_stance("force_eager")
    calls, named = calls_on_ranks(machine.turns), naming_torch(is_on=job.names_torch)
    with exact_arithmetic(), is_eager, calls, named, _NO_SPAWN:
        setup.on_rank(job.rank, machine.recorder, RankRun())
