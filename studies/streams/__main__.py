"""Compare the verdicts of `sim` and `streams`, and store them; goes on where it was cut off.

    python -m studies.streams                            all rows, 200 scenarios each
    python -m studies.streams ddp --scenarios 400        one row

Then `python -m studies.pages` writes the table of docs/scripts.md. Delete
studies/results/streams.jsonl first after a change of the harness.
"""

from __future__ import annotations

import sys
from typing import Final

import click
import torch

from studies.streams.page import keep, read
from studies.streams.playing import (
    NUM_SCENARIOS,
    RIGHT,
    Compared,
    compared,
    defects,
    drawn,
    subject_of,
)
from syncverify.command.process_exit import run_command
from syncverify.program.warnings_once import show_warnings_once

_PART: Final = 20  # scenarios, after which the results are stored


@click.command()
@click.argument("names", nargs=-1, metavar="[NAME]...")
@click.option("--scenarios", type=click.IntRange(min=1), default=NUM_SCENARIOS,
              show_default=True, help="Scenarios of each subject.")  # fmt: skip
def main(names: tuple[str, ...], scenarios: int) -> None:
    """Play what is not stored, and exit with 1 if a verdict differs."""
    torch.set_num_threads(1)
    show_warnings_once()
    rows = names or (*RIGHT, *defects())
    for name in rows:
        _fill(name, scenarios)
    sys.exit(any(read()[name].different for name in rows))


def _fill(name: str, wanted: int) -> None:
    """Play the scenarios of a row that are left, and store each part of them."""
    subject = subject_of(name)
    num_stored = read().get(name, Compared()).num_scenarios
    listed = drawn(subject, wanted) if num_stored < wanted else []
    for first in range(num_stored, wanted, _PART):
        found = compared(subject, listed[first : min(first + _PART, wanted)])
        row = read().get(name, Compared()) + found
        keep(name, row)
        click.echo(f"{name}: {row}")


if __name__ == "__main__":
    run_command(main, "python -m studies.streams")
