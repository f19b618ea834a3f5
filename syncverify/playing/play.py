"""One play of a program on ranks that are threads of this process.

A program is what runs on a rank: a class with a scenario, a function of a user, a training on a
layout. They differ in how they are made, and pass the same door here.
"""

from collections.abc import Sequence
from contextlib import AbstractContextManager
from typing import Any, NamedTuple, Protocol

import torch

from syncverify.late_imports import import_dynamo
from syncverify.playing.faults import threads_fault
from syncverify.playing.program.exact_arithmetic import exact_arithmetic
from syncverify.sim.machine import SimulatedMachine
from syncverify.sim.recording.rank_recorder import RankRecorder
from syncverify.sim.turns.decisions import Decisions
from syncverify.sim.turns.stalls import Stall
from syncverify.trace.run import RankRun, Run


class Returned(NamedTuple):
    """What a program returned on a rank; a rank that did not return has no value."""

    value: Any = None
    # Copies of the tensors in the value, made when the rank returned.
    tensors: Sequence[torch.Tensor] = ()


class Program(Protocol):
    """A function of a rank, with what its machine has to be like."""

    @property
    def hang_timeout_seconds(self) -> float:
        """Seconds without progress after which a rank counts as hung."""

    @property
    def is_for_nccl(self) -> bool:
        """Tell whether collectives of one group complete in the order of their launches."""

    @property
    def max_steps_per_rank(self) -> int:
        """Turns of a rank after which it never returns."""

    def recorders(self) -> Sequence[RankRecorder]:
        """Make the recorders of a play, by rank."""

    def prepare(self, machine: SimulatedMachine) -> None:
        """Give a new machine its devices and its failures."""

    def around(
        self, machine: SimulatedMachine, results: Sequence[RankRun]
    ) -> AbstractContextManager[object]:
        """Return the settings of this process during the play."""

    def on_rank(self, rank: int, recorder: RankRecorder, result: RankRun) -> Returned:
        """Run the program on a rank."""


class Played(NamedTuple):
    """A play of a program."""

    run: Run
    returned: Sequence[Returned]  # by rank
    # The reason for which no rank could go on; None if there is none.
    stall: Stall | None
    # Whether each rank returned.
    is_whole: bool
    machine: SimulatedMachine


def play(
    program: Program,
    decisions: Decisions | None = None,
    recorders: Sequence[RankRecorder] | None = None,
    *,
    is_prompt: bool = False,
    passes_stalls: bool = False,
) -> Played:
    """Play a program on all of its ranks.

    Args:
        decisions: The decisions that take the place of timing; None for the first schedule's.
        recorders: Recorders, by rank, that do more than those of the program.
        is_prompt: Whether each collective ends where it is issued.
        passes_stalls: Whether hosts go on in waits of streams once no rank can run, without
            values.

    Raises:
        EnvironmentNotSupportedError: The program asks for what the machine does not simulate.
        InternalError: The machine is at fault.
    """
    import_dynamo()
    decisions, recorders = decisions or Decisions(), recorders or program.recorders()
    machine = SimulatedMachine(
        len(recorders),
        decisions=decisions,
        recorders=recorders,
        hang_timeout_seconds=program.hang_timeout_seconds,
        max_steps_per_rank=program.max_steps_per_rank,
        completes_in_order=program.is_for_nccl,
        passes_stalls=passes_stalls,
    )
    machine.world.is_prompt = is_prompt
    program.prepare(machine)
    results = tuple(RankRun(trace=recorder.trace) for recorder in recorders)
    returned = [Returned()] * len(recorders)

    def on_rank(rank: int) -> None:
        returned[rank] = program.on_rank(rank, recorders[rank], results[rank])

    with exact_arithmetic(), program.around(machine, results):
        threads, stall = machine.run(on_rank)
    fault = threads_fault(threads, stall, machine.world.mismatch)
    run = Run("sim", results, fault, was_very_long=decisions.was_very_long)
    is_whole = all(each.error is None for each in threads)
    return Played(run, returned, stall, is_whole, machine)
