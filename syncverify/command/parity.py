"""The execution of `syncverify parity`: train on meshes, compare with one rank, and report."""

from __future__ import annotations

import time
from dataclasses import replace

from rich.console import Console

from syncverify.command.process_exit import (
    BAD_USAGE,
    VIOLATION,
    ending_when_interrupted,
)
from syncverify.command.recorded import reproduced_line
from syncverify.errors import UsageError
from syncverify.faces.whole_step.described import (
    AXES,
    Described,
    described,
    layouts_of,
    sizes_of,
)
from syncverify.faces.whole_step.outcome import Parity
from syncverify.faces.whole_step.parity import comparisons
from syncverify.report.console import check_folders, say
from syncverify.report.results import publish
from syncverify.scenario.program_token import ProgramPlay
from syncverify.scenario.settings import ParityOptions
from syncverify.subjects.subject_path import imported


def execute(options: ParityOptions, expected: ProgramPlay | None) -> int:
    """Play, print the report and write files; Ctrl-C keeps what was found.

    Raises:
        UsageError: The training cannot be played; the layouts before are reported.
    """
    check_folders(options.json_path, options.html_path)
    known = list[Parity]()

    def kept() -> str:
        if not known:
            return ""
        publish(known[-1], options.json_path, options.html_path)
        return "the report above has the layouts before"

    with ending_when_interrupted(kept):
        try:
            _play(_chosen(options), options, known)
        except UsageError:  # of a later layout
            kept()
            raise
    last = known[-1]
    publish(last, options.json_path, options.html_path)
    if expected is not None:
        found = [each.identity for each in last.mistakes]
        say(reproduced_line(expected, found, last.path, is_right=last.is_right))
    return _code(last)


def _code(parity: Parity) -> int:
    if parity.refused and not parity.mistakes and not parity.num_violations:
        return BAD_USAGE
    return 0 if parity.is_right else VIOLATION


def _play(chosen: Described, options: ParityOptions, known: list[Parity]) -> None:
    start, progress = time.monotonic(), Console(stderr=True, highlight=False)
    total, done = len(chosen.layouts) * len(chosen.numbers), 0
    for each in comparisons(chosen, options.module):
        known[:] = [each]
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
    return Described(
        training,
        layouts,
        options.micro_batches or found.numbers,
        options.data,
    )
