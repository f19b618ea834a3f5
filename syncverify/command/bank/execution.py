"""The execution of `syncverify bank`: play entries, print a table of results, write it."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import closing

from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn

from syncverify.command.bank.play import EntryResult, play_all
from syncverify.command.bank.table import line_of, summary, table, to_json
from syncverify.command.playing import playing
from syncverify.command.process_exit import VIOLATION
from syncverify.errors import UsageError
from syncverify.report.console import CommandConsole, check_folders, write_json
from syncverify.scenario.settings import BankOptions
from syncverify.subjects.bugbank.catalogue import entries, entry_of
from syncverify.subjects.bugbank.entry import Entry

_TABLE_WIDTH = 200  # characters, where output is not a terminal


@playing()
def execute(options: BankOptions) -> int:
    """Play the bank and print its table.

    Raises:
        UsageError: An id is unknown, the backend plays none of the entries, or the file of the
            table cannot be written.
    """
    named = [entry_of(entry_id) for entry_id in dict.fromkeys(options.only)]
    chosen = named or entries()
    check_folders(options.json_path)
    playable = [entry for entry in chosen if entry.runs_on(options.backend)]
    left_out = _left_out(chosen, options.backend)
    if not playable:
        raise UsageError(f"nothing to play on {options.backend}: {left_out}")
    console = CommandConsole()
    if not console.is_terminal:
        console.width = max(console.width, _TABLE_WIDTH)
    rows = _play(console, playable, options)
    console.print(table(rows))
    if len(playable) < len(chosen):
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
            counted = f"[{len(rows)} of {len(order)}] "
            console.print(counted + line_of(row))
    return sorted(rows, key=lambda row: order.index(row.id))


def _left_out(chosen: Sequence[Entry], backend: str) -> str:
    missing = [entry.name for entry in chosen if not entry.runs_on(backend)]
    verb = "takes" if len(missing) == 1 else "take"
    return f"{', '.join(missing)} {verb} streams from torch.cuda"
