"""The execution of `syncverify simulate`: play a program on simulated ranks, and report."""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NoReturn

from syncverify.command.process_exit import (
    COMMAND_NAME,
    VIOLATION,
    ending_when_interrupted,
    tell_end,
)
from syncverify.errors import EnvironmentNotSupportedError, UsageError
from syncverify.report.console import check_folder, say, write
from syncverify.scenario.schedule import Schedule
from syncverify.simulation.playing import Device
from syncverify.simulation.simulate import simulate
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
    json_path: Path | None
    html_path: Path | None


def execute(options: SimulateOptions) -> NoReturn:
    """Play, print the report, write files, and exit.

    Raises:
        EnvironmentNotSupportedError: The program asks for what is not simulated.
        SystemExit: Always; with the exit code.
        UsageError: The program cannot be found, or an option is wrong.
        SystemExit: Always, with the exit code.
    """
    check_folder(options.json_path)
    check_folder(options.html_path)
    with ending_when_interrupted(COMMAND_NAME):
        simulation = simulate(
            _found(options.program),
            options.ranks,
            device=options.device,
            schedules=options.schedules,
            schedule=_schedule(options.schedule),
            seed=options.seed,
            names_torch=options.names_torch,
        )
    if simulation.refused:
        raise EnvironmentNotSupportedError(f"not simulated: {simulation.refused}")
    say(str(simulation))
    if options.json_path is not None:
        write(options.json_path, json.dumps(simulation.to_json(), indent=2))
    if options.html_path is not None:
        simulation.write_html(options.html_path)
    code = VIOLATION if simulation.violations else 0
    tell_end(code)
    raise SystemExit(code)


def _found(path: str) -> Any:
    if ":" not in path:
        raise UsageError(
            f"expected a program as module:function or file.py:function, not {path!r}"
        )
    program = imported(path, "program")
    if not callable(program):
        raise UsageError(f"program {path!r} is not callable: expected a function")
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
