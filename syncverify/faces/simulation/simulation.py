"""The result of a simulation, as values."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import Any, Final

from syncverify.judge.remarks import Remark
from syncverify.judge.violation import Violation
from syncverify.rendered import Rendered
from syncverify.scenario.program_token import ProgramPlay
from syncverify.scenario.schedule import Schedule, ScheduleCoverage
from syncverify.trace.run import Run

# A program that was put together has no path.
_MADE: Final = "functools.partial("


@dataclass(frozen=True, slots=True)
class Harm:
    """A value that a rank returns in one legal order, and another one in another order.

    Attributes:
        as_queued: Elements of the value in the order in which the host queues.
        other: Those of the other order.
        start: Index of the first of them in the flat value.
    """

    rank: int
    as_queued: list[float]
    other: list[float]
    start: int = 0


@dataclass(frozen=True, slots=True)
class FoundInProgram:
    """A violation, and the schedule that leads to it.

    Attributes:
        violation: The property that does not hold, with its cause.
        schedule: Choices where timing could decide.
        run: The run that showed it first.
        harm: Another value that the program returns in another order of its streams; None
            where the violation is not about streams, or no such order was found.
    """

    violation: Violation
    schedule: Schedule
    run: Run = field(repr=False, compare=False)
    harm: Harm | None = None


class ProgramIsWrongError(AssertionError):
    """A simulation found violations; the text is its report."""


@dataclass(frozen=True, slots=True)
class Simulation(Rendered):
    """The outcome of a program on all of its ranks.

    Attributes:
        program: Name of the program.
        device: Device that torch named to the program.
        seed: Seed of random schedules.
        results: What the program returned, by rank, in the first run with a violation, or
            else in the first run. Empty where the program was refused.
        violations: One entry for each defect, in the order in which they were found.
        run: Traces and fault of that run; None where refused.
        num_runs: Number of runs.
        coverage: The part of all schedules that was played; None where refused.
        refused: What the machine does not simulate; "" where it played the program.
        remarks: What is not wrong for certain, and what no violation names: collectives that
            nothing waits for, and equal ones that ranks issue in opposite orders.
        recorded: How a script was played; None for a function.
    """

    program: str
    num_ranks: int
    device: str
    seed: int
    results: tuple[Any, ...] = ()
    violations: tuple[FoundInProgram, ...] = ()
    run: Run | None = None
    num_runs: int = 0
    coverage: ScheduleCoverage | None = None
    refused: str = ""
    remarks: tuple[Remark, ...] = ()
    recorded: ProgramPlay | None = None

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
        """Do nothing if the program was played and nothing is wrong.

        Raises:
            ProgramIsWrongError: A violation was found, or the program was not played.
        """
        if not self.is_right:
            raise ProgramIsWrongError(str(self))
