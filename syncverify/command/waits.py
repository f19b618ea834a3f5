"""The execution of `syncverify waits`: which waits of a subject are needed."""

from __future__ import annotations

import json
import time
from dataclasses import dataclass, replace
from pathlib import Path
from typing import NoReturn

from rich.table import Table

from syncverify.backends.announced_counts import with_announced_counts
from syncverify.command.playing import playing
from syncverify.command.process_exit import tell_end
from syncverify.errors import UsageError
from syncverify.plain_text import counted
from syncverify.report.console import CommandConsole, check_folder, write
from syncverify.scenario.small_scope import SmallScope
from syncverify.search.drawing import Drawing
from syncverify.search.exhaustive import scenarios_within
from syncverify.search.isolation import default_torch_state
from syncverify.subjects.subject import Subject, resolve
from syncverify.trace.source_files import naming_torch
from syncverify.waits.answers import AnsweredWaits
from syncverify.waits.exposed_time import Link
from syncverify.waits.finding import WaitSearch
from syncverify.waits.page import page_of
from syncverify.waits.text import COLUMNS, bound_lines, cells_of, verdict

_TABLE_WIDTH = 160  # characters, where output is not a terminal
_LINES_OF_PROGRESS = 4


@dataclass(frozen=True, slots=True, kw_only=True)
class WaitsOptions:
    """Values of the options, by the names that click gives; the help explains each."""

    subject: str
    contract: str | None
    scope: str
    examples: int
    ranks: int
    seed: int
    latency: float
    bandwidth: float
    time_limit_seconds: float | None
    names_torch: bool
    json_path: Path | None
    html_path: Path | None


@playing()
@default_torch_state()
def execute(options: WaitsOptions) -> NoReturn:
    """Find the word of each wait, print the table, write it and exit.

    Raises:
        SystemExit: With the exit code.
        UsageError: The subject cannot run on simulated ranks.
    """
    check_folder(options.json_path)
    check_folder(options.html_path)
    subject = with_announced_counts(
        resolve(options.subject, options.contract), "sim", []
    )
    if subject.capabilities.needs_processes:
        raise UsageError(
            f"{subject.name} needs processes; waits are taken out of simulated ranks alone"
        )
    console = CommandConsole()
    if not console.is_terminal:
        console.width = max(console.width, _TABLE_WIDTH)
    waits = _waits(options, subject, console)
    console.print(_table(waits))
    for line in (*bound_lines(waits), verdict(waits)):
        console.print(line)
    if options.json_path is not None:
        write(options.json_path, json.dumps(waits.to_json(), indent=2))
    if options.html_path is not None:
        write(options.html_path, page_of(waits))
    tell_end(0)
    raise SystemExit(0)


def _waits(
    options: WaitsOptions, subject: Subject, console: CommandConsole
) -> AnsweredWaits:
    scope = SmallScope.parse(options.scope)
    own = subject.capabilities
    listed = scenarios_within(scope, own)
    drawn = Drawing(own, options.ranks, options.examples, options.seed).drawn()
    more = [each for each in dict.fromkeys(drawn) if each not in {*listed}]
    waits = AnsweredWaits(
        options.subject,
        scope,
        len(listed),
        len(more),
        options.ranks,
        options.seed,
        Link(options.latency, options.bandwidth),
    )
    console.print(
        f"waits of {options.subject}: all {len(listed):,} scenarios of {scope}, and "
        f"{counted(len(more), 'drawn one')}"
    )
    limit = options.time_limit_seconds
    search = WaitSearch(
        subject,
        waits.link,
        lambda stage, number, total: _tell(console, stage, number, total),
        None if limit is None else time.monotonic() + limit,
    )
    with naming_torch(is_on=options.names_torch):
        return replace(waits, answers=search.answers([*listed, *more]))


def _table(waits: AnsweredWaits) -> Table:
    table = Table(title=f"waits of {waits.subject}", title_justify="left")
    for name in COLUMNS:
        table.add_column(name, overflow="fold")
    for each in waits.answers:
        table.add_row(*cells_of(each))
    return table


def _tell(console: CommandConsole, stage: str, number: int, total: int) -> None:
    """Print a few lines on the progress of a stage."""
    if number % -(-total // _LINES_OF_PROGRESS) == 0 or number == total:
        console.print(f"{stage}: {number:,} of {total:,} scenarios")
