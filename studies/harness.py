"""The command line of studies that play many programs: which ones, where, and what is stored."""

import functools
from collections.abc import Callable, Iterable, Sequence
from typing import Any, TypeVar

import click

from studies.rows import RowFile
from syncverify.processes.calls import Crew
from syncverify.search.sharded_search import crew_at

Program = TypeVar("Program")
Row = TypeVar("Row")


def with_crew(command: Callable[..., Any]) -> Callable[..., Any]:
    """Give a command the options `--jobs` and `--cluster`, and a `crew` as an argument."""

    @click.option("--jobs", type=click.IntRange(min=1), default=1, show_default=True,
                  help="Processes of this machine.")  # fmt: skip
    @click.option("--cluster", metavar="PLACE",
                  help="As that of `syncverify run`, in the place of --jobs.")  # fmt: skip
    @functools.wraps(command)
    def with_options(*, jobs: int, cluster: str | None, **others: Any) -> Any:
        return command(crew=crew_at(cluster, jobs), **others)

    return with_options


def with_only(names: Sequence[str]) -> Callable[..., Any]:
    """Give a command the option `--only`, for some of the names."""
    return click.option("--only", multiple=True, type=click.Choice(names), metavar="NAME",
                        help="Play the named programs alone; may be repeated.")  # fmt: skip


def play_all(
    crew: Crew,
    play: Callable[[Program], Row | str],
    programs: Iterable[Program],
    *,
    line: Callable[[Row], str],
    rows: RowFile[Row] | None = None,
) -> list[Row]:
    """Play programs, and store and print each result.

    Args:
        crew: Where `play` is called.
        play: Returns the row of a program, or the reason that there is none.
        programs: Programs, or their names.
        line: Returns the text of a row.
        rows: File of the rows; None stores nothing.

    Returns:
        The rows, in the order in which they came.
    """
    found = list[Row]()
    for program, row in crew(play, programs):
        if isinstance(row, str):
            click.echo(f"{program}: {row}")
            continue
        if rows is not None:
            rows.put(row)
        found.append(row)
        click.echo(line(row))
    return found
