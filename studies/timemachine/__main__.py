"""Play the pairs and write the page.

    python -m studies.timemachine                         # all sides that are not stored yet
    python -m studies.timemachine --again --jobs 2        # all sides, two at a time
    python -m studies.timemachine --only megatron-3670    # one, again

A round that was cut off goes on with the same command. Exit codes: 0 every pair is as the table
says, 1 one is not, 2 bad usage.
"""

from __future__ import annotations

import functools
import sys
from pathlib import Path
from typing import Final

import click

from studies.crews import with_crew
from studies.timemachine.page import PAGE
from studies.timemachine.pairs import table
from studies.timemachine.playing import ROOT, Played
from studies.timemachine.results import (
    SIDES,
    PlayedSide,
    holds,
    stored,
    version_of,
)
from studies.timemachine.round import Round
from studies.timemachine.sides import Side, missing, played_of
from syncverify.command.process_exit import run_command
from syncverify.processes.calls import Crew

_NAMES: Final = [pair.name for pair in table().pairs]


@click.command()
@click.option("--only", multiple=True, type=click.Choice(_NAMES), metavar="NAME",
              help="Play the named pairs, stored or not.")  # fmt: skip
@click.option("--again", is_flag=True, help="Play stored pairs as well.")
@click.option("--cache", type=click.Path(file_okay=False, path_type=Path),
              default=ROOT / "build" / "timemachine", help="Folder of releases.")  # fmt: skip
@with_crew
def main(only: tuple[str, ...], crew: Crew, cache: Path, *, again: bool) -> None:
    """Play real defects of real releases, and write their page."""
    chosen = [each for each in table().pairs if not only or each.name in only]
    round_ = Round(cache / "round.json") if again and not only else None
    sides = [
        side for pair in chosen for side in missing(pair, round_, is_named=bool(only))
    ]
    for side, played in crew(functools.partial(played_of, cache=cache), sides):
        if isinstance(played, Played):
            SIDES.put(PlayedSide.of(table()[side.pair], side.name, played))
            if round_:
                round_.add(side.pair, side.name)
        click.echo(_line(side, played))
    if round_:
        round_.end()
    PAGE.write()
    results = stored()
    as_told = [pair for pair in chosen if holds(results.get(pair.name, {}), pair)]
    click.echo(
        f"{len(as_told)} of {len(chosen)} pairs are as the table says: {PAGE.path}"
    )
    sys.exit(len(as_told) < len(chosen))


def _line(side: Side, played: Played | str) -> str:
    pair = table()[side.pair]
    if isinstance(played, str):
        return f"{pair.name}: {side.name}: {played}"
    version = version_of(pair, side.name)
    found = ", ".join(played.violations) or "silent"
    return (
        f"{pair.name}: {side.name}, {pair.package} {version}: {found}; "
        f"{played.examples} scenarios, {played.seconds} s"
    )


if __name__ == "__main__":
    run_command(main, "python -m studies.timemachine")
