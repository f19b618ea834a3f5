"""The executions of `syncverify simulate`, `record`, `judge` and `parity`: play or judge a program."""

from __future__ import annotations

import os
import time
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any, TypeVar
from unittest.mock import patch

from rich.console import Console

from syncverify.command.process_exit import (
    BAD_USAGE,
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
from syncverify.faces.whole_step.described import (
    AXES,
    Described,
    described,
    layouts_of,
    sizes_of,
)
from syncverify.faces.whole_step.outcome import Parity
from syncverify.faces.whole_step.parity import comparisons
from syncverify.report.console import check_folders, kept_output, say
from syncverify.report.results import publish
from syncverify.scenario.replay_token import ProgramPlay
from syncverify.scenario.schedule import Schedule
from syncverify.scenario.settings import (
    JudgeOptions,
    ParityOptions,
    RecordOptions,
    SimulateOptions,
)
from syncverify.subjects.subject_path import imported

Options = SimulateOptions | RecordOptions | JudgeOptions | ParityOptions
Result = TypeVar("Result", Simulation, Parity)


def simulate(options: SimulateOptions, expected: ProgramPlay | None) -> int:
    """Play a function, print the report and write files; Ctrl-C keeps what was found.

    Raises:
        EnvironmentNotSupportedError: The program asks for what is not simulated.
        UsageError: The program cannot be found, an option is wrong, or a file cannot be written.
    """
    kept = "what was found before is above"
    return _code(_last(_simulated(options), options, kept), expected)


def _simulated(options: SimulateOptions) -> Iterator[Simulation]:
    with _without_input(), kept_output():
        setup = SimulatedProgram(
            _found(options.program),
            options.ranks,
            options.device,
            options.hang_timeout,
            options.names_torch,
        )
        schedule = _schedule(options.schedule)
        yield from simulations(
            setup, options.program, options.schedules, schedule, options.seed
        )


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


def parity(options: ParityOptions, expected: ProgramPlay | None) -> int:
    """Train on meshes, compare with one rank and report; Ctrl-C keeps what was found.

    Raises:
        UsageError: The training cannot be played; the layouts before are reported.
    """
    kept = "the report above has the layouts before"
    return _code(_last(_compared(options), options, kept), expected)


def _compared(options: ParityOptions) -> Iterator[Parity]:
    """Yield what is known after each play, until all layouts or the time limit."""
    chosen = _chosen(options)
    start, progress = time.monotonic(), Console(stderr=True, highlight=False)
    total, done = len(chosen.layouts) * len(chosen.numbers), 0
    for each in comparisons(chosen, options.module):
        yield each
        before, done = done, _num_played(each, chosen)
        if done > before and not options.is_quiet:
            progress.print(f"played {done} of {total} layouts")
        seconds = time.monotonic() - start
        if done < total and options.time_limit and seconds > options.time_limit:
            say(f"time limit: {total - done} of {total} layouts were not played")
            return


def _num_played(parity: Parity, chosen: Described) -> int:
    """Return how many of the chosen layouts were played, with any data."""
    listed = (each for each in parity.plays if each.layout in chosen.layouts)
    return len({(each.layout, each.num_micro_batches) for each in listed})


def _chosen(options: ParityOptions) -> Described:
    """Return the training of the module, with the options in the place of its values.

    Raises:
        UsageError: The module describes no training, or an option is wrong.
    """
    found = described(imported(options.module, "module"))
    training = found.training
    training = replace(
        training,
        num_steps=options.steps or training.num_steps,
        seed=training.seed if options.seed is None else options.seed,
        sizes={**training.sizes, **sizes_of(options.size, training)},
        num_rows=options.rows,
    )
    axes = found.layouts[0].names if found.layouts else AXES
    layouts = tuple(layouts_of(options.layouts, axes)) or found.layouts
    if not layouts:
        raise UsageError(
            f"{options.module} has no `layouts`: add layouts = [{{'dp': 2}}], or "
            "say --layouts dp=2"
        )
    numbers = options.micro_batches or found.numbers
    return Described(training, layouts, numbers, options.data)


def _last(results: Iterable[Result], options: Options, kept: str) -> Result:
    """Publish the last result, which has all that those before it have, and return it.

    On Ctrl-C and at a usage error the one before is published; `kept` says so.

    Raises:
        UsageError: The program cannot be played, or a file cannot be written.
    """
    check_folders(options.json_path, options.html_path)
    known = list[Result]()

    def publish_known() -> str:
        for each in known:
            _publish(each, options)
        return kept if known else ""

    with ending_when_interrupted(publish_known):
        try:
            for each in results:
                known[:] = [each]
        except UsageError:
            publish_known()
            raise
    publish_known()
    return known[0]


def _publish(result: Simulation | Parity, options: Options) -> None:
    if isinstance(result, Simulation) and result.refused:
        raise EnvironmentNotSupportedError(result.refused)
    publish(result, options.json_path, options.html_path)


def _code(result: Simulation | Parity, expected: ProgramPlay | None) -> int:
    """Return the exit code; say whether a replay shows what it expects."""
    if isinstance(result, Parity):
        name, found = result.path, [each.identity for each in result.mistakes]
        is_judged = bool(found or result.num_violations or not result.refused)
    else:
        name, is_judged = result.program, True
        found = [each.violation.identity for each in result.violations]
    if expected is not None:
        say(reproduced_line(expected, found, name, is_right=result.is_right))
    if not is_judged:
        return BAD_USAGE
    return 0 if result.is_right else VIOLATION


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
