"""Play the waits of built-in subjects, and store their words and the check of superfluous ones.

    python -m studies.waits                            all rows, and 10,000 scenarios of each check
    python -m studies.waits fsdp2 --check 500          one row
    python -m studies.waits ddp --stored               the check alone, from where it was

Then `python -m studies.pages` writes the table of docs/how-we-know.md.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from dataclasses import replace
from typing import Final

import click
import torch

from studies.waits.playing import ROWS, Row, check, words_of
from studies.waits.results import ANSWERED, POINTS, Answered, store, superfluous
from syncverify.command.process_exit import run_command
from syncverify.program.warnings_once import show_warnings_once

_CHECKED: Final = 10_000


@click.command()
@click.argument("names", nargs=-1, type=click.Choice([*ROWS]))
@click.option("--examples", type=click.IntRange(min=1), default=100, show_default=True)
@click.option(
    "--check", "checked", type=click.IntRange(min=1), default=_CHECKED,
    show_default=True, help="Drawn scenarios without each superfluous point.",
)  # fmt: skip
@click.option(
    "--stored", is_flag=True, help="Check the stored words, and find none anew."
)
@click.option("--jobs", type=click.IntRange(min=1), default=1, show_default=True)
def main(
    names: tuple[str, ...], examples: int, checked: int, *, stored: bool, jobs: int
) -> None:
    """Store the words of the rows NAMES, or of all; exit with 1 if a check finds one wrong."""
    torch.set_num_threads(1)
    show_warnings_once()
    is_wrong = False
    for name in names or ROWS:
        row = ROWS[name]
        if not stored:
            found = words_of(row, examples, jobs)
            store(Answered.of(name, torch.__version__, examples, found), found)
        for line in _checks(row, checked, jobs):
            click.echo(f"{name}: {line}")
        is_wrong = is_wrong or bool(_answered(name).check_broken)
    sys.exit(is_wrong)


def _checks(row: Row, wanted: int, jobs: int) -> Iterator[str]:
    """Play the parts of a check that are left, store each, and yield how many were played."""
    points = superfluous(each for each in POINTS.read() if each.row == row.name)
    while points and (kept := _answered(row.name)).check_scenarios < wanted:
        found = check(row, points, kept.check_parts, jobs)
        broken = (f"{point}: {harm.token}" for point, harm in found.broken.items())
        kept = replace(
            kept,
            check_parts=kept.check_parts + 1,
            check_scenarios=kept.check_scenarios + found.num_scenarios,
            check_plays=kept.check_plays + found.num_plays,
            check_broken=(*kept.check_broken, *broken),
        )
        ANSWERED.put(kept)
        yield (
            f"{kept.check_scenarios:,} scenarios, {kept.check_plays:,} plays, "
            f"{len(kept.check_broken)} broken"
        )


def _answered(row: str) -> Answered:
    return next(each for each in ANSWERED.read() if each.row == row)


if __name__ == "__main__":
    run_command(main, "python -m studies.waits")
