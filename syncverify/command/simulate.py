"""The execution of `syncverify simulate`: play a program on simulated ranks, and report."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import NoReturn
from unittest.mock import patch

from syncverify.command.process_exit import (
    COMMAND_NAME,
    VIOLATION,
    ending_when_interrupted,
    tell_end,
)
from syncverify.command.reproduced import reproduced_line
from syncverify.errors import EnvironmentNotSupportedError, UsageError
from syncverify.faces.simulation.program import Device, SimulatedProgram
from syncverify.faces.simulation.simulate import ScheduleRequest, simulations
from syncverify.faces.simulation.simulation import Simulation
from syncverify.report.console import (
    check_folders,
    kept_output,
    say,
)
from syncverify.report.results import publish
from syncverify.scenario.program_token import ProgramPlay
from syncverify.scenario.schedule import Schedule
from syncverify.subjects.subject_path import imported


@dataclass(frozen=True, slots=True)
class SimulateOptions:
    """Options of the command, as `cli` declares them."""

    program: str
    ranks: int
    device: Device
    schedules: str
    schedule: str
    seed: int
    names_torch: bool
    hang_timeout: float
    json_path: Path | None
    html_path: Path | None
    expected: ProgramPlay | None = None


def execute(options: SimulateOptions) -> NoReturn:
    """Play, print the report, write files, and exit; Ctrl-C keeps what was found.

    Raises:
        EnvironmentNotSupportedError: The program asks for what is not simulated.
        SystemExit: Otherwise, with the exit code.
        UsageError: The program cannot be found, an option is wrong, or a file cannot be written.
    """
    check_folders(options.json_path, options.html_path)
    known = list[Simulation]()

    def kept() -> str:
        if not known:
            return ""
        _report(known[-1], options)
        return "what was found before is above"

    with ending_when_interrupted(COMMAND_NAME, kept), _without_input(), kept_output():
        known += simulations(*_request(options), options.program)
    _report(known[-1], options)
    say_reproduced(options.expected, known[-1])
    code = VIOLATION if known[-1].violations else 0
    tell_end(code)
    raise SystemExit(code)


def say_reproduced(expected: ProgramPlay | None, simulation: Simulation) -> None:
    """Print whether a replay shows the recorded violation again; nothing beside a replay."""
    if expected is not None:
        found = [each.violation.identity for each in simulation.violations]
        identity = (expected.property, expected.cause)
        is_right = simulation.is_right
        say(reproduced_line(identity, found, simulation.program, is_right=is_right))


def _report(simulation: Simulation, options: SimulateOptions) -> None:
    """Print the report of a simulation, and write its files.

    Raises:
        EnvironmentNotSupportedError: The program asks for what is not simulated.
        UsageError: A file cannot be written.
    """
    if simulation.refused:
        raise EnvironmentNotSupportedError(simulation.refused)
    publish(simulation, options.json_path, options.html_path)


def _request(options: SimulateOptions) -> tuple[SimulatedProgram, ScheduleRequest]:
    """Return the program with its machine, and the orders of its ranks.

    Raises:
        UsageError: The program cannot be found, or an option is wrong.
    """
    orders = ScheduleRequest(
        options.schedules, _schedule(options.schedule), options.seed
    )
    setup = SimulatedProgram(
        _found(options.program),
        options.ranks,
        options.device,
        options.hang_timeout,
        options.names_torch,
    )
    return setup, orders


@contextmanager
def _without_input() -> Iterator[None]:
    """Let the program read no input: a rank that waits for a user waits for ever."""
    with Path(os.devnull).open() as nothing, patch("sys.stdin", nothing):
        yield


def _found(path: str) -> Callable[..., object]:
    if ":" not in path:
        raise UsageError(
            f"expected a program as module:function or file.py:function, not {path!r}"
        )
    program: Callable[..., object] = imported(path, "program")
    return program


def _schedule(text: str) -> Schedule:
    """Return the schedule that a report has printed: whole numbers with commas.

    Raises:
        UsageError: The text is something else.
    """
    try:
        return Schedule(tuple(int(each) for each in text.split(",") if each))
    except ValueError:
        raise UsageError(
            f"expected a schedule such as 0,0,1 as a report prints it, not {text!r}"
        ) from None
