"""Play the pairs and write the page.

    python -m studies.timemachine                         # all sides that are not stored yet
    python -m studies.timemachine --again --jobs 2        # all sides, two pairs at a time
    python -m studies.timemachine --only megatron-3670    # one, again

A round that was cut off goes on with the same command. Exit codes: 0 every pair is as the table
says, 1 one is not, 2 bad usage.
"""

from __future__ import annotations

import sys
import threading
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import click

from studies.timemachine.page import PAGE
from studies.timemachine.pairs import Pair, table
from studies.timemachine.playing import ROOT
from studies.timemachine.releases import Releases
from studies.timemachine.results import Result, store, stored, with_side
from studies.timemachine.round import Round
from syncverify.command.process_exit import run_command

_STORING: Final = threading.Lock()
_NAMES: Final = [pair.name for pair in table().played]


@click.command()
@click.option("--only", multiple=True, type=click.Choice(_NAMES), metavar="NAME",
              help="Play the named pairs, stored or not.")  # fmt: skip
@click.option("--again", is_flag=True, help="Play stored pairs as well.")
@click.option("--jobs", type=click.IntRange(min=1), default=1,
              help="Pairs to play at a time.")  # fmt: skip
@click.option("--cache", type=click.Path(file_okay=False, path_type=Path),
              default=ROOT / "build" / "timemachine", help="Folder of releases.")  # fmt: skip
def main(only: tuple[str, ...], jobs: int, cache: Path, *, again: bool) -> None:
    """Play real defects of real releases, and write their page."""
    chosen = [each for each in table().played if not only or each.name in only]
    round_ = Round(cache / "round.json") if again and not only else None
    _play_all(chosen, jobs, _Plays(Releases(cache), bool(only), round_))
    if round_:
        round_.end()
    PAGE.write()
    results = stored()
    as_told = [p for p in chosen if p.name in results and results[p.name].holds(p)]
    click.echo(
        f"{len(as_told)} of {len(chosen)} pairs are as the table says: {PAGE.path}"
    )
    sys.exit(len(as_told) < len(chosen))


@dataclass(frozen=True, slots=True)
class _Plays:
    """Plays sides of pairs.

    Attributes:
        releases: Downloads the releases.
        is_named: Whether the user has named the pairs: then all sides are played.
        round: The round that plays all pairs again; None where stored sides count.
    """

    releases: Releases
    is_named: bool
    round: Round | None

    def needs(self, pair: Pair, side: str) -> bool:
        """Tell whether a side has to be played."""
        if self.round:
            return not self.round.has(pair.name, side)
        result = stored().get(pair.name)
        return self.is_named or result is None or result.needs(pair, side)

    def play(self, pair: Pair) -> None:
        """Play the sides of a pair that have to be played."""
        for side in pair.sides:
            if self.needs(pair, side):
                click.echo(f"{pair.name}: {side}: playing, a minute or two", err=True)
                try:
                    result = with_side(
                        stored().get(pair.name), pair, side, self.releases
                    )
                except click.ClickException as error:  # the next side may be played
                    click.echo(error.format_message(), err=True)
                    continue
                self._keep(pair, side, result)
            click.echo(_line(pair, side, stored()[pair.name]))

    def _keep(self, pair: Pair, side: str, result: Result) -> None:
        with _STORING:
            store({**stored(), pair.name: result})
        if self.round:
            self.round.add(pair.name, side)


def _play_all(pairs: list[Pair], jobs: int, plays: _Plays) -> None:
    """Play pairs; after an interrupt, the played sides are stored."""
    with ThreadPoolExecutor(jobs) as pool:
        try:
            for played in [pool.submit(plays.play, pair) for pair in pairs]:
                played.result()
        except BaseException:
            pool.shutdown(cancel_futures=True)
            raise


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
