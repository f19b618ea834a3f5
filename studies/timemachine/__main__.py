"""Play the pairs and write the page.

    python -m studies.timemachine                         # all sides that are not stored yet
    python -m studies.timemachine --again                 # all sides
    python -m studies.timemachine --only megatron-3670    # one, again

Exit codes: 0 every pair is as the table says, 1 one is not, 2 bad usage.
"""

from __future__ import annotations

import sys
from pathlib import Path

import click

from studies.timemachine.page import PAGE
from studies.timemachine.pairs import Pair, table
from studies.timemachine.playing import ROOT
from studies.timemachine.releases import Releases
from studies.timemachine.results import Result, store, stored, with_side
from syncverify.command.process_exit import run_command

_NAMES = [pair.name for pair in table().played]


@click.command()
@click.option("--only", multiple=True, type=click.Choice(_NAMES), metavar="NAME",
              help="Play the named pairs, stored or not.")  # fmt: skip
@click.option("--again", is_flag=True, help="Play stored pairs as well.")
@click.option("--cache", type=click.Path(file_okay=False, path_type=Path),
              default=ROOT / "build" / "timemachine", help="Folder of releases.")  # fmt: skip
def main(only: tuple[str, ...], cache: Path, *, again: bool) -> None:
    """Play real defects of real releases, and write their page."""
    chosen = [each for each in table().played if not only or each.name in only]
    for pair in chosen:
        _play(pair, Releases(cache), again=again or bool(only))
    PAGE.write()
    results = stored()
    as_told = [p for p in chosen if p.name in results and results[p.name].holds(p)]
    click.echo(
        f"{len(as_told)} of {len(chosen)} pairs are as the table says: {PAGE.path}"
    )
    sys.exit(len(as_told) < len(chosen))


def _play(pair: Pair, releases: Releases, *, again: bool) -> None:
    """Play the sides of a pair that are not stored, or all of them."""
    for side in pair.sides:
        result = stored().get(pair.name)
        if again or result is None or result.needs(pair, side):
            click.echo(f"{pair.name}: {side}: playing, a minute or two", err=True)
            try:
                result = with_side(result, pair, side, releases)
            except click.ClickException as error:  # the next side may be played
                click.echo(error.format_message(), err=True)
                continue
            store({**stored(), pair.name: result})
        click.echo(_line(pair, side, result))


def _line(pair: Pair, side: str, result: Result) -> str:
    played = result.side(side)
    assert played is not None  # it was played just now
    known = {"good": pair.good, "newest": result.newest_release}
    version = known.get(side, pair.bad)
    found = ", ".join(played.violations) or "silent"
    return (
        f"{pair.name}: {side}, {pair.package} {version}: {found}; "
        f"{played.examples} scenarios, {played.seconds} s"
    )


if __name__ == "__main__":
    run_command(main, "python -m studies.timemachine")
