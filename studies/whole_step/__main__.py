"""Play the files of `examples/parity`, and store the results.

    python -m studies.whole_step [FILE ...]

Then `python -m studies.pages` writes the table of docs/whole-step-recipes.md.
"""

from __future__ import annotations

import json
from pathlib import Path

import click

from studies.whole_step.page import EXAMPLES, RESULTS_FILE
from studies.whole_step.playing import played


@click.command()
@click.argument("files", nargs=-1, type=click.Path(exists=True, path_type=Path))
def main(files: tuple[Path, ...]) -> None:
    """Play the files of `examples/parity`, and store the results."""
    for file in files or sorted(EXAMPLES.glob("*.py")):
        result = played(file)
        # Another process may have written meanwhile.
        known = json.loads(RESULTS_FILE.read_text()) if RESULTS_FILE.exists() else {}
        known[file.stem] = result
        RESULTS_FILE.write_text(json.dumps(known, indent=1, sort_keys=True) + "\n")
        click.echo(f"{file.stem}: {result}")


if __name__ == "__main__":
    main()
