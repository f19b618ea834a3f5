"""The executions of `syncverify simulate`, `record` and `judge`: play or judge a program."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from unittest.mock import patch

from syncverify.command.process_exit import (
    INTERRUPTED,
    VIOLATION,
    ending_when_interrupted,
    leave_at_once,
)
from syncverify.command.recorded import reproduced_line
from syncverify.errors import EnvironmentNotSupportedError, UsageError
from syncverify.faces.scripts import recording
from syncverify.faces.scripts.recording import Recording
from syncverify.faces.scripts.script import Script
from syncverify.faces.scripts.trace_files import read_recording, write_recording
from syncverify.faces.simulation.program import SimulatedProgram
from syncverify.faces.simulation.simulate import simulations
from syncverify.faces.simulation.simulation import Simulation
from syncverify.report.console import check_folders, kept_output, say
from syncverify.report.results import publish
from syncverify.scenario.program_token import ProgramPlay
from syncverify.scenario.schedule import Schedule
from syncverify.scenario.settings import JudgeOptions, RecordOptions, SimulateOptions
from syncverify.subjects.subject_path import imported


def simulate(options: SimulateOptions, expected: ProgramPlay | None) -> int:
    """Play a function, print the report and write files; Ctrl-C keeps what was found.

    Raises:
        EnvironmentNotSupportedError: The program asks for what is not simulated.
        UsageError: The program cannot be found, an option is wrong, or a file cannot be written.
    """
    check_folders(options.json_path, options.html_path)
    known = list[Simulation]()

    def kept() -> str:
        if not known:
            return ""
        _publish(known[-1], options)
        return "what was found before is above"

    with ending_when_interrupted(kept), _without_input(), kept_output():
        setup = SimulatedProgram(
            _found(options.program),
            options.ranks,
            options.device,
            options.hang_timeout,
            options.names_torch,
        )
        known += simulations(
            setup,
            options.program,
            options.schedules,
            _schedule(options.schedule),
            options.seed,
        )
    _publish(known[-1], options)
    return _code(known[-1], expected)


def record(options: RecordOptions, expected: ProgramPlay | None) -> int:
    """Record a script, write its traces and judge them; Ctrl-C keeps what was recorded.

    Raises:
        EnvironmentNotSupportedError: The script asks for what is not simulated.
        UsageError: The script is not there, or a file cannot be written.
    """
    folder = options.out or Path(f"recorded-{Path(options.script).stem}")
    # A replay leaves the traces of the first run as they are.
    folders = [folder] if expected is None else []
    check_folders(options.json_path, options.html_path, *folders)
    script = Script(options.script, options.arguments, options.is_module)
    with ending_when_interrupted():
        recorded = recording.record(
            script,
            options.nproc,
            device=options.device,
            hang_timeout_seconds=options.hang_timeout,
            names_torch=options.names_torch,
        )
    for each in folders:
        write_recording(recorded, each)
        say(f"traces: {each}")
    return _judged(recorded, options, expected)


def judge(options: JudgeOptions) -> int:
    """Judge a folder of traces.

    Raises:
        EnvironmentNotSupportedError: The script asks for what is not simulated.
        UsageError: A file cannot be read or written.
    """
    check_folders(options.json_path, options.html_path)
    return _judged(read_recording(options.folder), options)


def _judged(
    recorded: Recording,
    options: RecordOptions | JudgeOptions,
    expected: ProgramPlay | None = None,
) -> int:
    simulation = recording.judge(recorded)
    _publish(simulation, options)
    if recorded.was_interrupted:
        say("interrupted: what was recorded until then is judged")
        leave_at_once(INTERRUPTED)
    return _code(simulation, expected)


def _publish(
    simulation: Simulation, options: SimulateOptions | RecordOptions | JudgeOptions
) -> None:
    if simulation.refused:
        raise EnvironmentNotSupportedError(simulation.refused)
    publish(simulation, options.json_path, options.html_path)


def _code(simulation: Simulation, expected: ProgramPlay | None) -> int:
    found = [each.violation.identity for each in simulation.violations]
    if expected is not None:
        is_right = simulation.is_right
        say(reproduced_line(expected, found, simulation.program, is_right=is_right))
    return VIOLATION if found else 0


@contextmanager
def _without_input() -> Iterator[None]:
    """Let the program read no input: a rank that waits for a user waits for ever."""
    with Path(os.devnull).open() as nothing, patch("sys.stdin", nothing):
        yield


def _found(path: str) -> Any:
    if ":" not in path:
        raise UsageError(
            f"expected a program as module:function or file.py:function, not {path!r}"
        )
    return imported(path, "program")


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
