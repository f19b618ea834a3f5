"""Play the pairs and write the page.

    python -m timemachine                         # all pairs that are not stored yet
    python -m timemachine --only megatron-3670    # one, again
    python -m timemachine --render                # the page alone

Exit codes: 0 every pair is as the table says, 1 one is not, 2 bad usage.
"""

from __future__ import annotations

import sys
from pathlib import Path

import click

from timemachine.front import README, readme
from timemachine.page import PAGE, page
from timemachine.pairs import Pair, table
from timemachine.playing import ROOT
from timemachine.releases import Releases
from timemachine.results import Result, measured, store, stored

_NAMES = [pair.name for pair in table().played]


@click.command()
@click.option("--only", multiple=True, type=click.Choice(_NAMES), metavar="NAME",
              help="Play the named pairs, stored or not.")  # fmt: skip
@click.option("--again", is_flag=True, help="Play stored pairs as well.")
@click.option("--render", is_flag=True, help="Play nothing; write the page.")
@click.option("--cache", type=click.Path(file_okay=False, path_type=Path),
              default=ROOT / "build" / "timemachine", help="Folder of releases.")  # fmt: skip
def main(only: tuple[str, ...], cache: Path, *, again: bool, render: bool) -> None:
    """Play real defects of real releases, and write their page."""
    releases, known = Releases(cache), stored()
    failed = False
    for pair in () if render else table().played:
        if pair.name in only or (not only and (again or pair.name not in known)):
            result = measured(pair, releases)
            known = {**stored(), pair.name: result}  # another process may have stored
            store(known)
            click.echo(_line(pair, result))
            failed |= not result.holds(pair)
    PAGE.write_text(page(table(), known), encoding="utf-8")
    README.write_text(readme(known), encoding="utf-8")
    sys.exit(failed)


def _line(pair: Pair, result: Result) -> str:
    verdict = "as expected" if result.holds(pair) else "NOT AS EXPECTED"
    found = ", ".join(result.bad.violations) or "nothing"
    return (
        f"{pair.name}: {verdict}: {pair.bad} shows {found} after {result.bad.examples} "
        f"scenarios, {result.bad.seconds} s"
    )


if __name__ == "__main__":
    main()
