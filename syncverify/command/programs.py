"""The executions of `syncverify simulate`, `record`, `judge` and `parity`: play or judge a program."""

import os
import time
from collections.abc import Iterable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import TypeVar
from unittest.mock import patch

from rich.console import Console

from syncverify.command import process_exit
from syncverify.command.recorded import reproduced_line
from syncverify.errors import EnvironmentNotSupportedError, UsageError
from syncverify.faces.scripts import recording
from syncverify.faces.scripts.script import Script
from syncverify.faces.simulation.program import SimulatedProgram
from syncverify.faces.simulation.simulate import simulations
from syncverify.faces.simulation.simulation import Simulation
from syncverify.faces.whole_step import described as wiring
from syncverify.faces.whole_step.outcome import Parity
from syncverify.faces.whole_step.parity import comparisons
from syncverify.report.console import check_files, kept_output, say
from syncverify.report.results import publish
from syncverify.scenario.replay_token import ProgramPlay
from syncverify.scenario.schedule import Schedule
from syncverify.scenario.settings import (
    JudgeOptions,
    ParityOptions,
    RecordOptions,
    ReportOptions,
    SimulateOptions,
)
from syncverify.subjects.subject_path import imported

Result = TypeVar("Result", Simulation, Parity)


def simulate(options: SimulateOptions, expected: ProgramPlay | None) -> int:
    """Play a function, print the report and write files; Ctrl-C keeps what was found."""
    kept = "what was found before is above"
    return _code(_last(_simulated(options), options, kept), expected)


def _simulated(options: SimulateOptions) -> Iterator[Simulation]:
    # A rank that waits for a user's input waits for ever.
    with Path(os.devnull).open() as nothing, patch("sys.stdin", nothing), kept_output():
        if ":" not in options.program:
            raise UsageError(
                "expected a program as module:function or file.py:function, not "
                f"{options.program!r}"
            )
        setup = SimulatedProgram(
            imported(options.program, "program"),
            options.ranks,
            options.device,
            options.hang_timeout,
            options.names_torch,
        )
        try:
            turns = tuple(int(each) for each in options.schedule.split(",") if each)
        except ValueError:
            raise UsageError(
                "expected a schedule such as 0,0,1 as a report prints it, not "
                f"{options.schedule!r}"
            ) from None
        yield from simulations(
            setup, options.program, options.schedules, Schedule(turns), options.seed
        )


def record(options: RecordOptions, expected: ProgramPlay | None) -> int:
    """Record a script, write its traces and judge them; Ctrl-C keeps what was recorded."""
    folder = options.out or Path(f"recorded-{Path(options.script).stem}")
    # A replay leaves the traces of the first run as they are.
    folders = [folder] if expected is None else []
    check_files(options, *folders)
    script = Script(options.script, options.arguments, options.is_module)
    with process_exit.ending_when_interrupted():
        recorded = recording.record(
            script,
            options.nproc,
            device=options.device,
            hang_timeout_seconds=options.hang_timeout,
            names_torch=options.names_torch,
        )
    for each in folders:
        recording.write_recording(recorded, each)
        say(f"traces: {each}")
    return _judged(recorded, options, expected)


def judge(options: JudgeOptions) -> int:
    """Judge a folder of traces."""
    check_files(options)
    return _judged(recording.read_recording(options.folder), options)


def _judged(
    recorded: recording.Recording,
    options: ReportOptions,
    expected: ProgramPlay | None = None,
) -> int:
    simulation = recording.judge(recorded)
    _publish(simulation, options)
    if recorded.was_interrupted:
        say("interrupted: what was recorded until then is judged")
        process_exit.leave_at_once(process_exit.INTERRUPTED)
    return _code(simulation, expected)


def parity(options: ParityOptions, expected: ProgramPlay | None) -> int:
    """Train on meshes, compare with one rank and report; Ctrl-C keeps what was found."""
    kept = "the report above has the layouts before"
    return _code(_last(_compared(options), options, kept), expected)


def _compared(options: ParityOptions) -> Iterator[Parity]:
    """Yield what is known after each play, until all layouts or the time limit."""
    chosen = _chosen(options)
    start, progress = time.monotonic(), Console(stderr=True, highlight=False)
    total, done = len(chosen.layouts) * len(chosen.numbers), 0
    for each in comparisons(chosen, options.module):
        yield each
        listed = (play for play in each.plays if play.layout in chosen.layouts)
        before, done = done, len({(it.layout, it.num_micro_batches) for it in listed})
        if done > before and not options.is_quiet:
            progress.print(f"played {done} of {total} layouts")
        seconds = time.monotonic() - start
        if done < total and options.time_limit and seconds > options.time_limit:
            say(f"time limit: {total - done} of {total} layouts were not played")
            return


def _chosen(options: ParityOptions) -> wiring.Described:
    """Return the training of the module, with the options in the place of its values."""
    found = wiring.described(imported(options.module, "module"))
    training = found.training
    training = replace(
        training,
        num_steps=options.steps or training.num_steps,
        seed=training.seed if options.seed is None else options.seed,
        sizes={**training.sizes, **wiring.sizes_of(options.size, training)},
        num_rows=options.rows,
    )
    axes = found.layouts[0].names if found.layouts else wiring.AXES
    layouts = tuple(wiring.layouts_of(options.layouts, axes)) or found.layouts
    if not layouts:
        raise UsageError(
            f"{options.module} has no `layouts`: add layouts = [{{'dp': 2}}], or "
            "say --layouts dp=2"
        )
    numbers = options.micro_batches or found.numbers
    return wiring.Described(training, layouts, numbers, options.data)


def _last(results: Iterable[Result], options: ReportOptions, kept: str) -> Result:
    """Publish the last result, and return it; `kept` tells that Ctrl-C publishes the one before."""
    check_files(options)
    known = list[Result]()

    def publish_known() -> str:
        for each in known:
            _publish(each, options)
        return kept if known else ""

    with process_exit.ending_when_interrupted(publish_known):
        try:
            for each in results:
                known[:] = [each]
        except UsageError:
            publish_known()
            raise
    publish_known()
    return known[0]


def _publish(result: Simulation | Parity, options: ReportOptions) -> None:
    if isinstance(result, Simulation) and result.refused:
        raise EnvironmentNotSupportedError(result.refused)
    publish(result, options)


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
        return process_exit.BAD_USAGE
    return 0 if result.is_right else process_exit.VIOLATION
