"""One play of a program: any function, run on each rank of a simulated machine."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any, Final, Protocol, runtime_checkable

import torch
from torch.distributed.tensor import DTensor
from torch.utils._pytree import tree_leaves

from syncverify.errors import RunEndedError, SyncverifyError
from syncverify.faces.simulation.process_calls import calls_on_ranks
from syncverify.faces.simulation.program import SimulatedProgram
from syncverify.playing.gpu_needs import refuse_need_of_gpu
from syncverify.playing.play import play as play_program
from syncverify.playing.program.subject_error import SubjectRaisedError
from syncverify.sim.machine import SimulatedMachine
from syncverify.sim.process_wide.rank_variables import (
    device_index,
    num_devices,
    one_machine,
)
from syncverify.sim.process_wide.settings import restored_settings
from syncverify.sim.recording.rank_recorder import RankRecorder
from syncverify.sim.turns.decisions import Decisions
from syncverify.sim.turns.refusals import OWN_THREAD
from syncverify.sim.turns.stalls import Stall
from syncverify.trace.records import Moment
from syncverify.trace.run import RankRun, Run
from syncverify.trace.source_lines import NoLine

# Outside of all regions.
_ANYWHERE: Final = Moment("", 0)


@runtime_checkable
class ShowsTensors(Protocol):
    """A result of a program that has tensors for a reader."""

    def shown_tensors(self) -> Iterator[torch.Tensor]:
        """Yield the tensors."""


@dataclass(frozen=True, slots=True)
class Played:
    """A play.

    Attributes:
        results: What the program returned, by rank; None where it did not return.
        values: Copies of the tensors in the results, by rank, made when the rank returned.
    """

    run: Run
    results: tuple[Any, ...]
    values: tuple[list[torch.Tensor], ...]
    stall: Stall | None
    is_whole: bool


def play(
    setup: SimulatedProgram,
    decisions: Decisions | None = None,
    recorders: Sequence[RankRecorder] | None = None,
    *,
    is_prompt: bool = False,
    passes_stalls: bool = False,
) -> Played:
    """Play a program on all of its ranks.

    Args:
        setup: The program and its machine.
        decisions: Decisions in the place of timing; None takes the default ones.
        recorders: Recorders, by rank; None takes those of the setup.
        is_prompt: Whether each collective ends where it is issued.
        passes_stalls: Whether hosts go on in waits of streams once no rank can run, without
            values.

    Returns:
        The play.

    Raises:
        EnvironmentNotSupportedError: The program asks for what the machine does not simulate.
        InternalError: The machine is at fault.
    """
    program = _FunctionProgram(setup, [Returned()] * setup.num_ranks)
    ended = play_program(
        program,
        decisions or Decisions(),
        recorders or setup.recorders(),
        is_prompt=is_prompt,
        passes_stalls=passes_stalls,
    )
    return Played(
        ended.run,
        tuple(each.result for each in program.returned),
        tuple(each.values for each in program.returned),
        ended.stall,
        ended.is_whole,
    )


@dataclass(frozen=True, slots=True)
class _FunctionProgram:
    """Any function of a rank, and what it returned on each."""

    setup: SimulatedProgram
    returned: list[Returned]
    max_steps_per_rank: int = 1_000_000

    @property
    def hang_timeout_seconds(self) -> float:
        return self.setup.hang_timeout_seconds

    @property
    def completes_in_order(self) -> bool:
        return self.setup.device == "cuda"

    def prepare(self, machine: SimulatedMachine) -> None:
        # No backend of processes plays it.
        machine.scheduler.refusals.instead = OWN_THREAD
        for rank, recorder in enumerate(machine.recorders):
            recorder.moment = _ANYWHERE
            if self.setup.device == "cuda":
                _tell_cuda(recorder, rank, self.setup.num_ranks)
            else:
                recorder.streams.backends.tell("gloo")

    @contextmanager
    def around(self, machine: SimulatedMachine, _: Sequence[RankRun]) -> Iterator[None]:
        # Compiled code runs as it is written: the recorder sees no operator within a kernel.
        is_eager = torch.compiler.set_stance("force_eager")
        calls = calls_on_ranks(machine.scheduler)
        with restored_settings(), one_machine(), is_eager, calls:
            yield

    def on_rank(self, rank: int, recorder: RankRecorder, _: RankRun) -> None:
        self.returned[rank] = call_on_rank(self.setup, rank, recorder)


def _tell_cuda(recorder: RankRecorder, rank: int, num_ranks: int) -> None:
    with one_machine():
        local_rank = device_index(rank, num_ranks)
    recorder.streams.backends.default = "nccl"
    recorder.streams.tell(torch.device("cuda", local_rank), num_devices(num_ranks))


@dataclass(frozen=True, slots=True)
class Returned:
    """The result of a program on one rank.

    Attributes:
        result: What the program returned.
        values: Copies of the tensors in the result.
    """

    result: Any = None
    values: list[torch.Tensor] = field(default_factory=list)


def call_on_rank(
    setup: SimulatedProgram, rank: int, recorder: RankRecorder
) -> Returned:
    """Call the program on a rank, and read what it returns on its current stream.

    Returns:
        What it returned.

    Raises:
        SubjectRaisedError: The program raised.
        SyncverifyError: The machine refuses a call.
        RunEndedError: The run has ended.
    """
    try:
        with recorder.recording_accesses():
            result = _result(setup, rank)
            tensors = [
                each for each in map(_local, tree_leaves(result)) if each is not None
            ]
            recorder.read("return", tensors, NoLine.RETURN)
            recorder.show(_shown(result))
        with torch.no_grad():
            return Returned(result, [each.clone() for each in tensors])
    except (SyncverifyError, RunEndedError):
        raise
    except BaseException as error:  # the program's, of any class
        if setup.device == "cuda":
            refuse_need_of_gpu(error)
        raise SubjectRaisedError(recorder.moment, error) from error


def _shown(result: object) -> Iterator[torch.Tensor]:
    """Yield the tensors of results that are no tensors and show some."""
    for leaf in tree_leaves(result):
        if isinstance(leaf, ShowsTensors):
            yield from leaf.shown_tensors()


def _result(setup: SimulatedProgram, rank: int) -> Any:
    """Call the program on a rank, which may end its process without an error."""
    try:
        return setup.call(rank)
    except SystemExit as end:
        if end.code:
            raise
        return None


def _local(value: object) -> torch.Tensor | None:
    """Return a tensor of a result, of a DTensor the part of this rank; None for other values."""
    if isinstance(value, DTensor):
        value = value.to_local()
    return value.detach() if isinstance(value, torch.Tensor) else None
