"""The execution of `syncverify waits`: which waits of a subject are needed."""

import math
import time
from collections.abc import Sequence
from dataclasses import dataclass

from rich.table import Table

from syncverify.command.playing import playing
from syncverify.errors import UsageError
from syncverify.explain.waits.answers import (
    Answer,
    AnsweredWaits,
    PlayedSubject,
    joined,
)
from syncverify.explain.waits.exposed_time import Link
from syncverify.explain.waits.finding import WaitSearch
from syncverify.plain_text import counted
from syncverify.playing.announced_counts import with_announced_counts
from syncverify.report import waits as words
from syncverify.report.console import CommandConsole, check_files, write_json
from syncverify.scenario.contract import ContractChoice
from syncverify.scenario.settings import WaitsOptions
from syncverify.scenario.small_scope import SmallScope
from syncverify.search.drawing import Drawing
from syncverify.search.isolation import default_torch_state
from syncverify.search.shards import scenarios_within
from syncverify.subjects.subject import Subject, resolve

_TABLE_WIDTH = 160  # characters, where output is not a terminal
_LINES_OF_PROGRESS = 4


@playing()
@default_torch_state()
def execute(options: WaitsOptions) -> int:
    """Find the word of each wait, print the table and write it."""
    check_files(options)
    subjects = [
        _resolved(name, options.contract) for name in (options.subject, *options.others)
    ]
    console = CommandConsole()
    if not console.is_terminal:
        console.width = max(console.width, _TABLE_WIDTH)
    waits = _waits(options, subjects, console)
    table = Table(title=f"waits of {waits.names}", title_justify="left")
    for name in words.COLUMNS:
        table.add_column(name, overflow="fold")
    for each in waits.answers:
        table.add_row(*words.cells_of(each))
    console.print(table)
    for line in (*words.bound_lines(waits), words.verdict(waits)):
        console.print(line)
    write_json(options.json_path, waits.to_json())
    if options.html_path is not None:
        waits.write_html(options.html_path)
    return 0


def _resolved(name: str, contract: ContractChoice | None) -> Subject:
    subject = with_announced_counts(resolve(name, contract), "sim", [])
    if subject.capabilities.needs_processes:
        raise UsageError(
            f"{name} needs processes; waits are taken out of simulated ranks alone"
        )
    return subject


def _waits(
    options: WaitsOptions, subjects: Sequence[Subject], console: CommandConsole
) -> AnsweredWaits:
    limit = options.time_limit_seconds
    deadline = math.inf if limit is None else time.monotonic() + limit
    scope = SmallScope.parse(options.scope)
    link = Link(options.latency, options.bandwidth)
    played, answers = list[PlayedSubject](), list[Answer]()
    for subject in subjects:
        search = WaitSearch(
            subject=subject,
            link=link,
            tell=_Progress(console).tell,
            deadline=deadline,
            jobs=options.jobs,
            names_torch=options.names_torch,
        )
        contract = subject.capabilities
        listed = scenarios_within(scope, contract)
        more = Drawing(contract, options.ranks, options.examples, options.seed).drawn()
        drawn = [each for each in dict.fromkeys(more) if each not in {*listed}]
        console.print(
            f"waits of {subject.name}: all {len(listed):,} scenarios of {scope}, and "
            f"{counted(len(drawn), 'drawn one')}"
        )
        answers += search.answers([*listed, *drawn])
        played.append(search.played(len(listed), len(drawn)))
    return AnsweredWaits(
        subjects=tuple(played),
        scope=scope,
        max_ranks=options.ranks,
        seed=options.seed,
        link=link,
        answers=joined(answers),
    )


@dataclass(slots=True)
class _Progress:
    """Prints a few lines on the progress of each stage."""

    console: CommandConsole
    last: tuple[str, int] = ("", 0)  # stage and part of it of the last line

    def tell(self, stage: str, number: int, total: int) -> None:
        part = stage, number * _LINES_OF_PROGRESS // max(total, 1)
        if part != self.last:
            self.console.print(f"{stage}: {number:,} of {total:,} scenarios")
        self.last = part
