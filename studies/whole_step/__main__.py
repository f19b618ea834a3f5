"""Play the files of `examples/parity`, and store the results.

    python -m studies.whole_step [FILE ...]

Then `python -m studies.pages` writes the table of docs/whole-step-recipes.md.
"""

from __future__ import annotations

from pathlib import Path

import click

from studies.rows import today
from studies.whole_step.page import EXAMPLES, PLAYS, Row
from studies.whole_step.playing import played


@click.command()
@click.argument("files", nargs=-1, type=click.Path(exists=True, path_type=Path))
def main(files: tuple[Path, ...]) -> None:
    """Play the files of `examples/parity`, and store the results."""
    for file in files or sorted(EXAMPLES.glob("*.py")):
        row = Row(file=file.stem, date=today(), **played(file))
        PLAYS.put(row)
        click.echo(row)


if __name__ == "__main__":
    main()
