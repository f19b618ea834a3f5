"""Play torch's own distributed tests on the simulated machine, and write their table.

    python -m studies.torch_tests                          # downloads the tag of the installed torch
    python -m studies.torch_tests --source /src/pytorch    # a checkout or a git directory
    python -m studies.torch_tests --source /src/torch_npu --own /src/4c8b95514429
    python -m studies.torch_tests --gloo differing         # on real processes: what did not pass
    python -m studies.torch_tests --gloo all               # hours
    python -m studies.torch_tests --only tensor/test_init.py

Exit codes: 0 all was played, 2 bad usage.
"""

from __future__ import annotations

import tempfile
from pathlib import Path

import click
import torch

from studies.torch_tests.page import PAGE
from studies.torch_tests.playing import GLOO_SECONDS, Results, play
from studies.torch_tests.playing import SIMULATED as OPTIONS
from studies.torch_tests.results import GLOO, SIMULATED, Stored
from studies.torch_tests.roster import FILES
from studies.torch_tests.source import added, fetched
from syncverify.command.process_exit import run_command


@click.command()
@click.option("--source", type=click.Path(exists=True, path_type=Path), metavar="FOLDER",
              help="Checkout or git directory of pytorch, or of torch_npu.")  # fmt: skip
@click.option("--own", type=click.Path(exists=True, path_type=Path), metavar="FOLDER",
              help="Some of torch's own files, to be played beside those of torch_npu; the folder "
              "has the name of their commit.")  # fmt: skip
@click.option("--gloo", type=click.Choice(["all", "differing"]),
              help="Play on real processes with gloo instead.")  # fmt: skip
@click.option("--only", multiple=True, metavar="FILE", help="Play the named files.")
def main(
    source: Path | None, own: Path | None, only: tuple[str, ...], gloo: str | None
) -> None:
    """Play torch's own tests, store the results, and write docs/torch-tests.md."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        found = fetched(folder, source)
        stored = Stored.read()
        if stored.source != found.kind:
            stored = Stored()
        stored.source, stored.name, stored.torch = (
            found.kind,
            found.name,
            torch.__version__,
        )
        beside = [] if own is None else added(folder, own)
        stored.own |= {file: own.name for file in beside if own is not None}
        for file in only or (*FILES[found.kind], *beside):
            ways = stored.files.setdefault(file, {})
            if gloo is None:
                played = play(folder / "cuda" / file, *OPTIONS, per_test_seconds=120)
                ways[SIMULATED] = played
            else:
                chosen = _chosen(ways.get(SIMULATED, {}), gloo)
                if not chosen:
                    continue
                played = play(
                    folder / "cpu" / file,
                    per_test_seconds=GLOO_SECONDS,
                    chosen=chosen,
                )
                ways[GLOO] = {**ways.get(GLOO, {}), **played}
            stored.write()
            passed = sum(each.outcome == "passed" for each in played.values())
            click.echo(f"{file}: {passed} of {len(played)} passed")
    PAGE.write()


def _chosen(simulated: Results, gloo: str) -> list[str]:
    """Return the tests that gloo plays."""
    return [
        test
        for test, result in simulated.items()
        if result.outcome == "failed" or (gloo == "all" and result.outcome == "passed")
    ]


if __name__ == "__main__":
    run_command(main, "python -m studies.torch_tests")
