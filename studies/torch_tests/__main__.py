"""Play torch's own distributed tests on the simulated machine, and write their table.

    python -m studies.torch_tests                          # downloads the tag of the installed torch
    python -m studies.torch_tests --source /src/pytorch    # a checkout or a git directory
    python -m studies.torch_tests --source /src/torch_npu --own /src/4c8b95514429
    python -m studies.torch_tests --gloo differing         # on real processes: what did not pass
    python -m studies.torch_tests --gloo all               # hours
    python -m studies.torch_tests --only tensor/test_init.py

Exit codes: 0 all was played, 2 bad usage.
"""

import tempfile
from collections.abc import Iterable
from pathlib import Path

import click

from studies.torch_tests import roster
from studies.torch_tests.page import PAGE
from studies.torch_tests.playing import GLOO_SECONDS, play
from studies.torch_tests.playing import SIMULATED as OPTIONS
from studies.torch_tests.results import TESTS, PlayedTest, keep_gloo, keep_simulated
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
    """Play torch's own tests, store the results, and write docs/how-we-know.md."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        found = fetched(folder, source)
        if not any(row.source.startswith(found.kind) for row in TESTS.read()):
            TESTS.write(())
        beside = [] if own is None else added(folder, own)
        files = dict.fromkeys([*roster.played(folder / "cuda"), *beside])
        for file in only or files:
            if gloo is None:
                played = play(folder / "cuda" / file, *OPTIONS, per_test_seconds=120)
                copy = (
                    f"torch commit {own.name}"
                    if own is not None and file in beside
                    else f"{found.kind} {found.name}"
                )
                keep_simulated(file, copy, played)
            else:
                chosen = _chosen(
                    [row for row in TESTS.read() if row.file == file], gloo
                )
                if not chosen:
                    continue
                played = play(
                    folder / "cpu" / file, per_test_seconds=GLOO_SECONDS, chosen=chosen
                )
                keep_gloo(file, played)
            passed = sum(each.outcome == "passed" for each in played.values())
            click.echo(f"{file}: {passed} of {len(played)} passed")
    PAGE.write()


def _chosen(rows: Iterable[PlayedTest], gloo: str) -> list[str]:
    """Return the tests that gloo plays."""
    return [
        row.test
        for row in rows
        if row.simulated == "failed" or (gloo == "all" and row.simulated == "passed")
    ]


if __name__ == "__main__":
    run_command(main, "python -m studies.torch_tests")
