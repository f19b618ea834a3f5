"""Play the pairs and write the page.

    python -m studies.timemachine                         # all sides that are not stored yet
    python -m studies.timemachine --again --jobs 2        # all sides, two at a time
    python -m studies.timemachine --only megatron-3670    # one, again

A command that was cut off goes on where it was, on the same day. Exit codes: 0 every pair is as
the table says, 1 one is not, 2 bad usage.
"""

import functools
import sys
from pathlib import Path
from typing import Final

import click

from studies.harness import play_all, with_crew, with_only
from studies.rows import today
from studies.timemachine.page import PAGE
from studies.timemachine.pairs import Pair, table
from studies.timemachine.playing import ROOT
from studies.timemachine.releases import Releases
from studies.timemachine.results import (
    SIDES,
    PlayedSide,
    holds,
    needs,
    played_side,
    stored,
)
from syncverify.command.process_exit import run_command
from syncverify.processes.calls import Crew

Side = tuple[str, str]  # names of a pair and of its side
_NAMES: Final = [pair.name for pair in table().pairs]


@click.command()
@with_only(_NAMES)
@click.option("--again", is_flag=True, help="Play sides that were not played today.")
@click.option("--cache", type=click.Path(file_okay=False, path_type=Path),
              default=ROOT / "build" / "timemachine", help="Folder of releases.")  # fmt: skip
@with_crew
def main(only: tuple[str, ...], crew: Crew, cache: Path, *, again: bool) -> None:
    """Play real defects of real releases, and write their page."""
    chosen = [each for each in table().pairs if not only or each.name in only]
    sides = [
        (pair.name, side)
        for pair in chosen
        for side in pair.sides
        if only or _is_missing(pair, side, again=again)
    ]
    play_all(
        crew, functools.partial(_played, cache=cache), sides, line=_line, rows=SIDES
    )
    PAGE.write()
    results = stored()
    as_told = [pair for pair in chosen if holds(results.get(pair.name, {}), pair)]
    click.echo(
        f"{len(as_told)} of {len(chosen)} pairs are as the table says: {PAGE.path}"
    )
    sys.exit(len(as_told) < len(chosen))


def _is_missing(pair: Pair, side: str, *, again: bool) -> bool:
    sides = stored().get(pair.name, {})
    return needs(sides, pair, side) or (again and sides[side].date != today())


def _played(side: Side, cache: Path) -> PlayedSide | str:
    """Play a side; return why there is no report, if there is none: the next one may be played."""
    try:
        return played_side(table()[side[0]], side[1], Releases(cache))
    except click.ClickException as error:
        return error.format_message()


def _line(row: PlayedSide) -> str:
    found = ", ".join(row.violations) or "silent"
    cost = f"{row.examples} scenarios, {row.seconds} s"
    return f"{row.pair}, {row.side}: release {row.release}: {found}; {cost}"


if __name__ == "__main__":
    run_command(main, "python -m studies.timemachine")
