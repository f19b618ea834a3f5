"""The command `syncverify bank`."""

from __future__ import annotations

import json
from collections.abc import Sequence
from contextlib import closing
from pathlib import Path

import click
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn

from syncverify.bank_command.jobs import play_all
from syncverify.bank_command.play import DEFAULT_BANK_EXAMPLES, Budget, Played
from syncverify.bank_command.table import line_of, summary, table, to_json
from syncverify.bugbank.catalogue import entries, entry_of
from syncverify.bugbank.entry import Entry
from syncverify.errors import UsageError
from syncverify.report.console import CommandConsole, check_folder, write

_TABLE_WIDTH = 200  # characters, where output is not a terminal


@click.command()
@click.option(
    "--only",
    "only",
    metavar="ID",
    multiple=True,
    help="Play this entry only; may be repeated.",
)
@click.option(
    "--backend",
    type=click.Choice(("sim", "gloo")),
    default="sim",
    show_default=True,
    help="Where the ranks run.",
)
@click.option(
    "--examples",
    type=click.IntRange(min=1),
    default=DEFAULT_BANK_EXAMPLES,
    show_default=True,
    help="Scenarios a defect, at most: the first that shows it ends the search.",
)
@click.option(
    "--twin-examples",
    type=click.IntRange(min=0),
    default=10,
    show_default=True,
    help="Scenarios a fixed twin, at least, in which nothing may be found.",
)
@click.option(
    "--seed",
    type=click.IntRange(min=0),
    default=0,
    show_default=True,
    help="Same seed, same scenarios.",
)
@click.option(
    "--jobs",
    type=click.IntRange(min=1),
    default=1,
    show_default=True,
    help="Processes that play entries side by side.",
)
@click.option(
    "--json",
    "json_path",
    type=click.Path(dir_okay=False, path_type=Path),
    default=None,
    help="Write the table here.",
)
def bank(
    only: tuple[str, ...],
    backend: str,
    examples: int,
    twin_examples: int,
    seed: int,
    jobs: int,
    json_path: Path | None,
) -> None:
    """Play the bank of known defects: is each one caught, and its fixed twin left alone?"""
    chosen = [entry_of(entry_id) for entry_id in dict.fromkeys(only)] or entries()
    check_folder(json_path)
    playable = [entry for entry in chosen if entry.runs_on(backend)]
    if not playable:
        raise UsageError(f"nothing to play on {backend}: {_without(chosen, backend)}")
    budget = Budget(examples, twin_examples, seed)
    console = CommandConsole(highlight=False)
    if not console.is_terminal:
        console.width = max(console.width, _TABLE_WIDTH)
    rows = _play(console, playable, backend, budget, jobs)
    console.print(table(rows))
    if len(playable) < len(chosen):
        console.print(f"left out: {_without(chosen, backend)}", soft_wrap=True)
    for line in summary(rows):
        console.print(line, markup=False, soft_wrap=True)
    if json_path is not None:
        write(json_path, json.dumps(to_json(rows, budget), indent=2, allow_nan=False))
    raise SystemExit(0 if all(row.is_as_it_should_be for row in rows) else 1)


def _play(
    console: CommandConsole,
    chosen: Sequence[Entry],
    backend: str,
    budget: Budget,
    jobs: int,
) -> list[Played]:
    """Play entries, say a line about each, and sort them as they were chosen."""
    order = [entry.id for entry in chosen]
    columns = (TextColumn("playing the bank"), BarColumn(), MofNCompleteColumn())
    rows: list[Played] = []
    with (
        Progress(*columns, console=console, disable=not console.is_terminal) as bar,
        closing(play_all(chosen, backend, budget, jobs)) as played,
    ):
        task = bar.add_task("playing", total=len(order))
        for row in played:
            rows.append(row)
            bar.advance(task)
            counted = f"[{len(rows)} of {len(order)}] "
            console.print(counted + line_of(row), markup=False, soft_wrap=True)
    return sorted(rows, key=lambda row: order.index(row.id))


def _without(chosen: Sequence[Entry], backend: str) -> str:
    missing = [entry.id for entry in chosen if not entry.runs_on(backend)]
    verb = "takes" if len(missing) == 1 else "take"
    return f"{', '.join(missing)} {verb} streams from torch.cuda"
