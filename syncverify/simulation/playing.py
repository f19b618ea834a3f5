"""One play of a program: any function, run on each rank of a simulated machine."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any, Final, Protocol, runtime_checkable

import torch
from torch.distributed.tensor import DTensor
from torch.utils._pytree import tree_leaves

from syncverify.backends.faults import threads_fault
from syncverify.backends.gpu_needs import refuse_need_of_gpu
from syncverify.errors import RunEndedError, SyncverifyError
from syncverify.late_imports import import_dynamo
from syncverify.program.exact_arithmetic import exact_arithmetic
from syncverify.program.subject_error import SubjectRaisedError
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
from syncverify.simulation.process_calls import calls_on_ranks
from syncverify.simulation.program import SimulatedProgram
from syncverify.trace.records import Moment
from syncverify.trace.run import RankRun, Run
from syncverify.trace.source_lines import NoLine

# Outside of all regions.
_ANYWHERE: Final = Moment("", 0)
_MAX_STEPS_PER_RANK: Final = 1_000_000


@runtime_checkable
class ShowsTensors(Protocol):
    """A result of a program that has tensors for a reader."""

    def shown_tensors(self) -> Iterator[torch.Tensor]:
        """Yield the tensors."""


@dataclass(frozen=True, slots=True)
class Played:
    """A play.

    Attributes:
        run: Traces, and the reason of an early end.
        results: What the program returned, by rank; None where it did not return.
        values: Copies of the tensors in the results, by rank, made when the rank returned.
        stall: The reason for which no rank could go on; None if there is none.
        is_whole: Whether each rank returned.
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
    import_dynamo()
    machine = SimulatedMachine(
        setup.num_ranks,
        decisions=decisions,
        recorders=recorders or setup.recorders(),
        hang_timeout_seconds=setup.hang_timeout_seconds,
        max_steps_per_rank=_MAX_STEPS_PER_RANK,
        completes_in_order=setup.device == "cuda",
        passes_stalls=passes_stalls,
    )
    machine.world.is_prompt = is_prompt
    machine.scheduler.refusals.instead = OWN_THREAD  # no backend of processes plays it
    returned = [Returned() for _ in range(setup.num_ranks)]
    for rank, recorder in enumerate(machine.recorders):
        recorder.moment = _ANYWHERE
        if setup.device == "cuda":
            _tell_cuda(recorder, rank, setup.num_ranks)
        else:
            recorder.streams.backends.tell("gloo")

    def on_rank(rank: int) -> None:
        returned[rank] = call_on_rank(setup, rank, machine.recorders[rank])

    # Compiled code runs as it is written: the recorder sees no operator within a kernel.
    is_eager = torch.compiler.set_stance("force_eager")
    calls = calls_on_ranks(machine.scheduler)
    with exact_arithmetic(), restored_settings(), one_machine(), is_eager, calls:
        threads, stall = machine.run(on_rank)
    fault = threads_fault(threads, stall, machine.world.mismatch)
    ranks = tuple(RankRun(trace=recorder.trace) for recorder in machine.recorders)
    return Played(
        Run("sim", ranks, fault),
        tuple(each.result for each in returned),
        tuple(each.values for each in returned),
        stall,
        all(thread.error is None for thread in threads),
    )


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
