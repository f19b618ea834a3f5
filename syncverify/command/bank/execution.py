"""The execution of `syncverify bank`: play entries, print a table of results, write it."""

from collections.abc import Iterable, Iterator, Sequence
from contextlib import closing
from dataclasses import asdict
from statistics import median
from typing import Any

from rich.box import SIMPLE_HEAD
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn
from rich.table import Table

from syncverify.command.bank.play import EntryResult, play_all
from syncverify.command.playing import playing
from syncverify.command.process_exit import VIOLATION
from syncverify.errors import UsageError
from syncverify.plain_text import counted, noun_of
from syncverify.report.console import CommandConsole, check_files, write_json
from syncverify.scenario.settings import BankOptions
from syncverify.subjects.bugbank.catalogue import entries, entry_of
from syncverify.subjects.bugbank.entry import Entry

_TABLE_WIDTH = 200  # characters, where output is not a terminal
TABLE_VERSION = 1
_HEADINGS = (
    "id", "source", "caught by", "contract", "on", "scenarios", "seconds",
    "ranks x parameters x steps", "cause", "twin",
)  # fmt: skip


@playing()
def execute(options: BankOptions) -> int:
    """Play the bank and print its table; raise UsageError for an unknown id, or nothing to play."""
    named = [entry_of(entry_id) for entry_id in dict.fromkeys(options.only)]
    chosen = named or entries()
    check_files(options)
    playable = [entry for entry in chosen if entry.runs_on(options.backend)]
    missing = [entry.name for entry in chosen if not entry.runs_on(options.backend)]
    verb = "takes" if len(missing) == 1 else "take"
    left_out = f"{', '.join(missing)} {verb} streams from torch.cuda"
    if not playable:
        raise UsageError(f"nothing to play on {options.backend}: {left_out}")
    console = CommandConsole()
    if not console.is_terminal:
        console.width = max(console.width, _TABLE_WIDTH)
    rows = _play(console, playable, options)
    console.print(table(rows))
    if missing:
        console.print(f"left out: {left_out}")
    for line in summary(rows):
        console.print(line)
    write_json(options.json_path, to_json(rows, options))
    return 0 if all(row.is_right for row in rows) else VIOLATION


def _play(
    console: CommandConsole, chosen: Sequence[Entry], options: BankOptions
) -> list[EntryResult]:
    """Play entries, print a line about each, and sort the results as they were chosen."""
    order = [entry.name for entry in chosen]
    columns = (TextColumn("playing the bank"), BarColumn(), MofNCompleteColumn())
    rows: list[EntryResult] = []
    with (
        Progress(*columns, console=console, disable=not console.is_terminal) as bar,
        closing(play_all(chosen, options)) as results,
    ):
        task = bar.add_task("playing", total=len(order))
        for row in results:
            rows.append(row)
            bar.advance(task)
            console.print(f"[{len(rows)} of {len(order)}] {line_of(row)}")
    return sorted(rows, key=lambda row: order.index(row.id))


def line_of(row: EntryResult) -> str:
    """Return a line such as "an-id: caught by ... after 1 scenario, 0.1 s"."""
    played = counted(row.examples, "scenario")
    line = f"{row.id}: MISSED in {played}"
    if row.caught is not None:
        named = f"{row.caught.property} ({row.caught.cause})"
        line = f"{row.id}: caught by {named} after {played}, {row.seconds:.1f} s"
    if row.alarm is not None:
        named = f"{row.alarm.property} ({row.alarm.cause})"
        line += f"; FALSE ALARM about its twin: {named}, token {row.alarm.token}"
    return line


def table(rows: Sequence[EntryResult]) -> Table:
    """Return the results of all entries as a table for a console."""
    laid_out = Table(box=SIMPLE_HEAD)
    for heading in _HEADINGS:
        laid_out.add_column(heading, overflow="fold")
    for row in rows:
        twin = f"silent over {row.twin_examples}" if row.twin_examples else "not played"
        twin = twin if row.alarm is None else f"ALARM: {row.alarm.property}"
        laid_out.add_row(row.id, row.source, *_found(row), twin)
    return laid_out


def _found(row: EntryResult) -> tuple[str, ...]:
    if row.caught is None:
        played = (row.backend, str(row.examples), f"{row.seconds:.1f}")
        return "MISSED", "", *played, "", ""
    caught = row.caught
    return (
        caught.property,
        caught.contract,
        row.backend,
        str(row.examples),
        f"{row.seconds:.1f} + {row.seconds_to_shrink:.1f}",
        f"{caught.ranks} x {caught.parameters} x {caught.steps}",
        "right" if row.is_cause_right else f"WRONG: {caught.cause}",
    )


def summary(rows: Sequence[EntryResult]) -> Iterator[str]:
    """Yield lines of text that sum up the results."""
    found = [row for row in rows if row.caught is not None]
    caught = [row.caught for row in found if row.caught is not None]
    yield f"caught: {_share(len(found), len(rows))}"
    if found:
        yield (
            f"median to detection: {_median((row.examples for row in found), 'scenario')}, "
            f"{median(row.seconds for row in found):.2f} s"
        )
        num_right = sum(row.is_cause_right for row in rows)
        yield f"cause right: {_share(num_right, len(rows))}"
        if diagnosed := [row for row in rows if row.fix is not None]:
            num_shown = sum(row.is_line_shown is True for row in diagnosed)
            num_fixed = sum(bool(row.fix) for row in diagnosed)
            yield f"guilty line shown: {_share(num_shown, len(diagnosed))}"
            yield f"fix as code that was played: {_share(num_fixed, len(diagnosed))}"
        yield (
            f"median after shrinking: {_median((each.ranks for each in caught), 'rank')}, "
            f"{_median((each.parameters for each in caught), 'parameter')}, "
            f"{_median((each.steps for each in caught), 'step')}"
        )
    # The search of a twin counts once, also if entries share it.
    num_played = sum(row.twin_examples for row in rows if row.twin_played_for == row.id)
    num_silent = sum(row.alarm is None for row in rows)
    yield (
        f"twins silent: {_share(num_silent, len(rows))}, over "
        f"{counted(num_played, 'scenario')} in all"
    )


def _median(numbers: Iterable[int], noun: str) -> str:
    middle = median(numbers)
    return f"{middle:g} {noun_of(middle, noun)}"


def _share(part: int, whole: int) -> str:
    return f"{part} of {whole} ({100 * part / whole:.1f} %)" if whole else "0 of 0"


def to_json(rows: Sequence[EntryResult], options: BankOptions) -> dict[str, Any]:
    """Return the numbers of scenarios and all results as plain JSON values; the format is versioned."""
    return {
        "version": TABLE_VERSION,
        "examples": options.examples,
        "twin_examples": options.twin_examples,
        "seed": options.seed,
        "diagnoses": options.diagnoses,
        "entries": [asdict(row) for row in rows],
    }
