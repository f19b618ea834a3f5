"""Play the waits of built-in subjects, and store their words and the check of superfluous ones.

    python -m studies.waits                      all rows, and 10,000 scenarios of each check
    python -m studies.waits fsdp2 --check 500    one row

Then `python -m studies.pages` writes the table of docs/waits.md.
"""

from __future__ import annotations

import sys
from typing import Final

import click
import torch

from studies.waits.page import read, write
from studies.waits.playing import ROWS, check, words_of
from syncverify.command.process_exit import run_command
from syncverify.program.warnings_once import show_warnings_once

_CHECKED: Final = 10_000


@click.command()
@click.argument("names", nargs=-1, type=click.Choice([*ROWS]))
@click.option("--examples", type=click.IntRange(min=1), default=100, show_default=True)
@click.option(
    "--check", "checked", type=click.IntRange(min=1), default=_CHECKED,
    show_default=True, help="Drawn scenarios without each superfluous call.",
)  # fmt: skip
@click.option("--jobs", type=click.IntRange(min=1), default=1, show_default=True)
def main(names: tuple[str, ...], examples: int, checked: int, jobs: int) -> None:
    """Store the words of the rows NAMES, or of all; exit with 1 if a check finds one wrong."""
    torch.set_num_threads(1)
    show_warnings_once()
    is_wrong = False
    for name in names or ROWS:
        row = ROWS[name]
        waits = words_of(row, examples, jobs)
        found = check(row, waits, checked, jobs)
        is_wrong = is_wrong or bool(found["broken"])
        write(
            read()
            | {
                name: {
                    "command": row.command(examples),
                    **waits.to_json(),
                    "check": found,
                }
            }
        )
        click.echo(f"{name}: {found}")
    sys.exit(is_wrong)


if __name__ == "__main__":
    run_command(main, "studies.waits")
