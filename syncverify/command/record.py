"""The executions of `syncverify record` and `syncverify judge`."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import NoReturn

from syncverify.command.process_exit import (
    COMMAND_NAME,
    INTERRUPTED,
    VIOLATION,
    ending_when_interrupted,
    leave_at_once,
    tell_end,
)
from syncverify.command.simulate import say_reproduced
from syncverify.errors import EnvironmentNotSupportedError
from syncverify.faces.scripts.recording import Recording, judge, record
from syncverify.faces.scripts.script import Script
from syncverify.faces.scripts.trace_files import read_recording, write_recording
from syncverify.faces.simulation.program import Device
from syncverify.report.console import check_folders, say
from syncverify.report.results import publish
from syncverify.scenario.program_token import ProgramPlay


@dataclass(frozen=True, slots=True)
class RecordOptions:
    """Options of `record`, as `cli` declares them."""

    nproc: int
    is_module: bool
    device: Device
    out: Path | None
    names_torch: bool
    hang_timeout: float
    json_path: Path | None
    html_path: Path | None
    script: str
    arguments: tuple[str, ...]
    expected: ProgramPlay | None = None

    @property
    def folder(self) -> Path:
        """Folder of the traces."""
        return self.out or Path(f"recorded-{Path(self.script).stem}")


def execute_record(options: RecordOptions) -> NoReturn:
    """Record a script, write its traces, judge them, and exit; Ctrl-C keeps what was recorded.

    Raises:
        EnvironmentNotSupportedError: The script asks for what is not simulated.
        SystemExit: Otherwise, with the exit code.
        UsageError: The script is not there, or a file cannot be written.
    """
    is_first = options.expected is None
    folders = [options.folder] if is_first else []
    check_folders(options.json_path, options.html_path, *folders)
    script = Script(options.script, options.arguments, options.is_module)
    with ending_when_interrupted(COMMAND_NAME):
        recording = record(
            script,
            options.nproc,
            device=options.device,
            hang_timeout_seconds=options.hang_timeout,
            names_torch=options.names_torch,
        )
    if is_first:  # a replay leaves the traces of the first run as they are
        write_recording(recording, options.folder)
        say(f"traces: {options.folder}")
    _judge(recording, options.json_path, options.html_path, options.expected)


def execute_judge(
    folder: Path, json_path: Path | None, html_path: Path | None
) -> NoReturn:
    """Judge a folder of traces, and exit.

    Raises:
        EnvironmentNotSupportedError: The script asks for what is not simulated.
        SystemExit: Otherwise, with the exit code.
        UsageError: A file cannot be read or written.
    """
    check_folders(json_path, html_path)
    _judge(read_recording(folder), json_path, html_path)


def _judge(
    recording: Recording,
    json_path: Path | None,
    html_path: Path | None,
    expected: ProgramPlay | None = None,
) -> NoReturn:
    """Judge a recording, print the report, write its files, and exit.

    Raises:
        EnvironmentNotSupportedError: The script asks for what is not simulated.
        SystemExit: Otherwise, with the exit code.
    """
    simulation = judge(recording)
    if simulation.refused:
        raise EnvironmentNotSupportedError(simulation.refused)
    publish(simulation, json_path, html_path)
    if recording.was_interrupted:
        say("interrupted: what was recorded until then is judged")
        leave_at_once(INTERRUPTED)
    say_reproduced(expected, simulation)
    code = VIOLATION if simulation.violations else 0
    tell_end(code)
    raise SystemExit(code)
