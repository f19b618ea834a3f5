"""The result of a simulation, as values."""

from dataclasses import dataclass, field, replace
from typing import Any, Final

from syncverify.judge.remarks import Remark
from syncverify.judge.violation import Violation
from syncverify.rendered import Rendered
from syncverify.scenario.replay_token import ProgramPlay
from syncverify.scenario.schedule import Schedule, ScheduleCoverage
from syncverify.trace.run import Run

# A program that was put together has no path.
_MADE: Final = "functools.partial("


@dataclass(frozen=True, slots=True)
class Harm:
    """A value that a rank returns in one legal order, and another one in another order."""

    rank: int
    as_queued: list[float]  # elements, in the order in which the host queues
    other: list[float]
    start: int = 0  # index of the first of them in the flat value


@dataclass(frozen=True, slots=True)
class FoundInProgram:
    """A violation, and the schedule that leads to it."""

    violation: Violation
    schedule: Schedule
    run: Run = field(repr=False, compare=False)  # that showed it first
    # Another value that the program returns in another order of its streams; None where the
    # violation is not about streams, or no such order was found.
    harm: Harm | None = None


class ProgramIsWrongError(AssertionError):
    """A simulation found violations; the text is its report."""


@dataclass(frozen=True, slots=True)
class Simulation(Rendered):
    """The outcome of a program on all of its ranks; most of it is empty where it was refused."""

    program: str  # its name
    num_ranks: int
    device: str  # that torch named to the program
    seed: int  # of random schedules
    # What the program returned, by rank, in the first run with a violation, or else in the first.
    results: tuple[Any, ...] = ()
    # One for each defect, in the order in which they were found.
    violations: tuple[FoundInProgram, ...] = ()
    run: Run | None = None  # traces and fault of that run
    num_runs: int = 0
    coverage: ScheduleCoverage | None = None
    refused: str = ""  # what the machine does not simulate; "" where it played
    # What is not wrong for certain, and what no violation names: collectives that nothing waits
    # for, and equal ones that ranks issue in opposite orders.
    remarks: tuple[Remark, ...] = ()
    recorded: ProgramPlay | None = None  # how a script was played; None for a function

    @property
    def is_found_by_name(self) -> bool:
        """Tell whether a command finds the program: it finds paths alone."""
        is_path = ":" in self.program and not self.program.startswith(_MADE)
        return is_path or self.recorded is not None

    def play_of(self, found: FoundInProgram) -> ProgramPlay:
        """Return how to play the run of a violation again."""
        if self.recorded is not None:
            name, cause = found.violation.identity
            return replace(self.recorded, property=name, cause=cause)
        options = ["--ranks", str(self.num_ranks), "--device", self.device]
        if choices := found.schedule.choices:
            options += ["--schedule", ",".join(map(str, choices))]
        return ProgramPlay(*found.violation.identity, "simulate", tuple(options))

    @property
    def is_right(self) -> bool:
        """Tell whether the program was played, and nothing is wrong."""
        return not (self.violations or self.refused)

    def check(self) -> None:
        """Raise ProgramIsWrongError if a violation was found, or the program was not played."""
        if not self.is_right:
            raise ProgramIsWrongError(str(self))
