"""A program and the machine that plays it; anything else is refused before a rank runs.

Also the regions: names that a program gives to its parts, for reports and timelines.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, Final, Literal, get_args

from syncverify.errors import UsageError
from syncverify.scenario.settings import PROGRAM_HANG_TIMEOUT_SECONDS
from syncverify.sim.device.streams import own_streams
from syncverify.sim.recording.data_names import NamingRecorder
from syncverify.sim.recording.rank_recorder import RankRecorder
from syncverify.trace.records import Moment

Program = Callable[..., Any]
Device = Literal["cuda", "cpu"]

# Each rank is a thread of this process.
MAX_RANKS: Final = 4096


@dataclass(frozen=True, slots=True)
class SimulatedProgram:
    """A program and the machine that plays it."""

    # It gets its rank, unless it can be called without an argument and names none `rank`.
    program: Program
    num_ranks: int
    device: Device = "cuda"
    # Without progress; then a rank counts as hung.
    hang_timeout_seconds: float = PROGRAM_HANG_TIMEOUT_SECONDS
    names_torch: bool = False
    # Without the accesses of operators no race is found, and a play takes about half of the time.
    records_accesses: bool = True

    def check(self) -> None:
        """Do nothing if the machine can play the program.

        Raises:
            UsageError: It is no function of a rank, or the machine does not exist.
        """
        if not 1 <= self.num_ranks <= MAX_RANKS:
            raise UsageError(
                f"expected 1 to {MAX_RANKS} ranks, not {self.num_ranks}: each rank is a thread "
                "of this process"
            )
        if self.device not in get_args(Device):
            raise UsageError(f"expected device 'cuda' or 'cpu', not {self.device!r}")
        if problem := _problem(self.program):
            raise UsageError(f"expected a function of a rank: {problem}")

    def call(self, rank: int) -> Any:
        """Call the program on a rank."""
        return self.program(rank) if _takes_rank(self.program) else self.program()

    def recorders(self) -> list[RankRecorder]:
        """Make the recorders of a play."""
        return [
            NamingRecorder(records_accesses=self.records_accesses)
            for _ in range(self.num_ranks)
        ]


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
    if streams is None:
        yield
        return
    with streams.at(Moment(name, step)):
        yield
