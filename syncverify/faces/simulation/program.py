"""Any function as a program of a rank; anything else is refused before a rank runs.

Also the regions: names that a program gives to its parts, for reports and timelines.
"""

import inspect
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass
from typing import Any, Final, Literal, Protocol, get_args, runtime_checkable

import torch
from torch.distributed.tensor import DTensor
from torch.utils._pytree import tree_leaves

from syncverify.errors import RunEndedError, SyncverifyError, UsageError
from syncverify.faces.simulation.process_calls import calls_on_ranks
from syncverify.playing.gpu_needs import refuse_need_of_gpu
from syncverify.playing.play import Returned
from syncverify.playing.program.subject_error import SubjectRaisedError
from syncverify.scenario.settings import PROGRAM_HANG_TIMEOUT_SECONDS
from syncverify.sim.device.streams import own_streams
from syncverify.sim.machine import SimulatedMachine
from syncverify.sim.process_wide.rank_variables import (
    device_index,
    num_devices,
    one_machine,
)
from syncverify.sim.process_wide.settings import restored_settings
from syncverify.sim.recording.data_names import NamingRecorder
from syncverify.sim.recording.rank_recorder import RankRecorder
from syncverify.sim.turns.refusals import OWN_THREAD
from syncverify.trace.records import Moment
from syncverify.trace.run import RankRun
from syncverify.trace.source_lines import NoLine

Program = Callable[..., Any]
Device = Literal["cuda", "cpu"]

# Each rank is a thread of this process.
MAX_RANKS: Final = 4096
# Outside of all regions.
_ANYWHERE: Final = Moment("", 0)


@runtime_checkable
class ShowsTensors(Protocol):
    """A result of a program that has tensors for a reader."""

    def shown_tensors(self) -> Iterator[torch.Tensor]:
        """Yield the tensors."""


@dataclass(frozen=True, slots=True)
class SimulatedProgram:
    """A function of a user, and the machine that plays it."""

    # It gets its rank, unless it can be called without an argument and names none `rank`.
    program: Program
    num_ranks: int
    device: Device = "cuda"
    # Without progress; then a rank counts as hung.
    hang_timeout_seconds: float = PROGRAM_HANG_TIMEOUT_SECONDS
    names_torch: bool = False
    # Without the accesses of operators no race is found, and a play takes about half of the time.
    records_accesses: bool = True
    max_steps_per_rank: int = 1_000_000

    def check(self) -> None:
        """Raise UsageError if it is no function of a rank, or the machine does not exist."""
        if not 1 <= self.num_ranks <= MAX_RANKS:
            raise UsageError(
                f"expected 1 to {MAX_RANKS} ranks, not {self.num_ranks}: each rank is a thread "
                "of this process"
            )
        if self.device not in get_args(Device):
            raise UsageError(f"expected device 'cuda' or 'cpu', not {self.device!r}")
        if problem := _problem(self.program):
            raise UsageError(f"expected a function of a rank: {problem}")

    def recorders(self) -> list[RankRecorder]:
        """Make the recorders of a play."""
        return [
            NamingRecorder(records_accesses=self.records_accesses)
            for _ in range(self.num_ranks)
        ]

    @property
    def is_for_nccl(self) -> bool:
        """Tell whether streams and collectives work as with NCCL."""
        return self.device == "cuda"

    def prepare(self, machine: SimulatedMachine) -> None:
        """Tell each rank its device."""
        # No backend of processes plays it.
        machine.scheduler.refusals.instead = OWN_THREAD
        for rank, recorder in enumerate(machine.recorders):
            recorder.moment = _ANYWHERE
            if not self.is_for_nccl:
                recorder.streams.backends.tell("gloo")
                continue
            with one_machine():
                device = torch.device("cuda", device_index(rank, self.num_ranks))
            recorder.streams.backends.default = "nccl"
            recorder.streams.tell(device, num_devices(self.num_ranks))

    @contextmanager
    def around(self, machine: SimulatedMachine, _: Sequence[RankRun]) -> Iterator[None]:
        """Let calls of the function act on ranks within a block."""
        # Compiled code runs as it is written: the recorder sees no operator within a kernel.
        is_eager = torch.compiler.set_stance("force_eager")
        calls = calls_on_ranks(machine.scheduler)
        with restored_settings(), one_machine(), is_eager, calls:
            yield

    def on_rank(self, rank: int, recorder: RankRecorder, _: RankRun) -> Returned:
        """Call the function on a rank, and read what it returns on its current stream."""
        try:
            with recorder.recording_accesses():
                result = self._call(rank)
                leaves = tree_leaves(result)
                tensors = [each for each in map(_local, leaves) if each is not None]
                recorder.read("return", tensors, NoLine.RETURN)
                showing = (each for each in leaves if isinstance(each, ShowsTensors))
                recorder.show(t for each in showing for t in each.shown_tensors())
            with torch.no_grad():
                return Returned(result, [each.clone() for each in tensors])
        except (SyncverifyError, RunEndedError):
            raise
        except BaseException as error:  # the function's, of any class
            if self.device == "cuda":
                refuse_need_of_gpu(error)
            raise SubjectRaisedError(recorder.moment, error) from error

    def _call(self, rank: int) -> Any:
        """Call the function on a rank, which may end its process without an error."""
        try:
            return self.program(rank) if _takes_rank(self.program) else self.program()
        except SystemExit as end:
            if end.code:
                raise
            return None


def _local(value: object) -> torch.Tensor | None:
    """Return a tensor of a result, of a DTensor the part of this rank; None for other values."""
    if isinstance(value, DTensor):
        value = value.to_local()
    return value.detach() if isinstance(value, torch.Tensor) else None


def _problem(program: Any) -> str:
    """Return why a call with a rank runs no program; "" if it does."""
    if not callable(program):
        return f"{program!r} is not callable"
    name = getattr(program, "__qualname__", type(program).__qualname__)
    if isinstance(program, type):
        return f"{name} is a class; a function has to make its object and use it"
    if inspect.isgeneratorfunction(program) or inspect.isasyncgenfunction(program):
        return f"{name}() is a generator, and a call runs none of its lines"
    if inspect.iscoroutinefunction(program):
        return f"{name}() is async; a function has to run it, as by asyncio.run()"
    signature = _signature(program)
    if signature is None or _fits(signature) or _fits(signature, 0):
        return ""
    return (
        f"a rank alone is not enough for {name}{signature}; functools.partial gives the "
        "other arguments"
    )


def _takes_rank(program: Program) -> bool:
    """Tell whether a program gets its rank: it needs an argument, names it `rank`, or takes any."""
    signature = _signature(program)
    if signature is None or not _fits(signature):
        return True
    first = next(iter(signature.parameters.values()), None)
    return first is not None and (
        first.name == "rank" or first.kind is inspect.Parameter.VAR_POSITIONAL
    )


def _signature(program: Program) -> inspect.Signature | None:
    try:
        return inspect.signature(program)
    except ValueError:  # a function in C
        return None


def _fits(signature: inspect.Signature, *arguments: object) -> bool:
    try:
        signature.bind(*arguments)
    except TypeError:
        return False
    return True


@contextmanager
def region(name: str, *, step: int = 0) -> Iterator[None]:
    """Name the work of a block in reports: `with syncverify.region("backward", step=1):`.

    Outside of a simulation the block runs as it is, so a program that runs on GPUs as well
    may keep its regions. The training step counts from 0.
    """
    streams = own_streams()
    with nullcontext() if streams is None else streams.at(Moment(name, step)):
        yield
