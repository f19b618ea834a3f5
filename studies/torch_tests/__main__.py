"""Play torch's own distributed tests on the simulated machine, and write their table.

    python -m studies.torch_tests                          # downloads the tag of the installed torch
    python -m studies.torch_tests --source /src/pytorch    # a checkout or a git directory
    python -m studies.torch_tests --gloo                   # on real processes too: an hour and more
    python -m studies.torch_tests --only tensor/test_init.py

Exit codes: 0 all was played, 2 bad usage.
"""

from __future__ import annotations

import tempfile
from pathlib import Path

import click
import torch

from studies.torch_tests.page import PAGE
from studies.torch_tests.playing import SIMULATED as OPTIONS
from studies.torch_tests.playing import play
from studies.torch_tests.results import GLOO, SIMULATED, Stored
from studies.torch_tests.roster import FILES
from studies.torch_tests.source import tests_in
from syncverify.command.process_exit import run_command


@click.command()
@click.option("--source", type=click.Path(exists=True, path_type=Path), metavar="FOLDER",
              help="Checkout or git directory of pytorch, or of torch_npu.")  # fmt: skip
@click.option("--gloo", "on_gloo", is_flag=True,
              help="Play on real processes with gloo instead.")  # fmt: skip
@click.option("--only", multiple=True, metavar="FILE", help="Play the named files.")
def main(source: Path | None, only: tuple[str, ...], *, on_gloo: bool) -> None:
    """Play torch's own tests, store the results, and write docs/torch-tests.md."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        found = tests_in(folder, source)
        stored = Stored.read()
        if stored.source != found.kind:
            stored = Stored()
        stored.source, stored.name, stored.torch = found.kind, found.name, torch.__version__
        for file in only or FILES[found.kind]:
            if on_gloo:
                results = play(folder / "cpu" / file, per_test_seconds=300)
            else:
                results = play(folder / "cuda" / file, *OPTIONS, per_test_seconds=120)
            stored.files.setdefault(file, {})[GLOO if on_gloo else SIMULATED] = results
            stored.write()
            passed = sum(each.outcome == "passed" for each in results.values())
            click.echo(f"{file}: {passed} of {len(results)} passed")
    PAGE.write()


if __name__ == "__main__":
    run_command(main, "python -m studies.torch_tests")
