"""One play of a program: any function, run on each rank of a simulated machine."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
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
    """A play; a rank that did not return has None, and no values."""

    run: Run
    results: tuple[Any, ...]  # what the program returned, by rank
    # Copies of the tensors in the results, by rank, made when the rank returned.
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
    """Play a program on all of its ranks; the options are those of `playing.play`.

    Raises:
        EnvironmentNotSupportedError: The program asks for what the machine does not simulate.
        InternalError: The machine is at fault.

    Returns:
        The play.
    """
    program = _FunctionProgram(setup)
    ended = play_program(
        program,
        decisions or Decisions(),
        recorders or setup.recorders(),
        is_prompt=is_prompt,
        passes_stalls=passes_stalls,
    )
    results, values = zip(*program.returned, strict=True)
    return Played(ended.run, results, values, ended.stall, ended.is_whole)


# What a program returned on a rank, and copies of the tensors in it.
_Returned = tuple[Any, list[torch.Tensor]]


class _FunctionProgram:
    """Any function of a rank, and what it returned on each."""

    max_steps_per_rank = 1_000_000

    def __init__(self, setup: SimulatedProgram) -> None:
        self.setup = setup
        self.returned: list[_Returned] = [(None, [])] * setup.num_ranks
        self.hang_timeout_seconds = setup.hang_timeout_seconds
        self.completes_in_order = setup.device == "cuda"

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


def call_on_rank(
    setup: SimulatedProgram, rank: int, recorder: RankRecorder
) -> _Returned:
    """Call the program on a rank, and read what it returns on its current stream.

    Returns:
        What it returned, with copies of the tensors in it.

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
            return result, [each.clone() for each in tensors]
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
