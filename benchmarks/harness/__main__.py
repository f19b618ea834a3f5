"""The command line: `python -m benchmarks.harness`; exit codes as in `command.py`."""

import json
from collections.abc import Callable
from pathlib import Path

import click
import torch
from rich.console import Console

from benchmarks.command import refuse_missing_folder, run_command
from benchmarks.document import place_of_tables, replace_tables
from benchmarks.harness.measures import (
    measure_detector,
    measure_large,
    measure_spawned,
    measure_threaded,
    measure_warm,
)
from benchmarks.harness.players import BrokenRunError
from benchmarks.harness.sizes import SMOKE, Sizes
from benchmarks.measure import Measure
from benchmarks.report import Machine, Report
from syncverify.errors import SyncverifyError

NAME = "benchmarks.harness"
MIN_ROUNDS = 10  # fewer say nothing on a machine that others use too
PARTS: dict[str, Callable[[Sizes], list[Measure]]] = {
    "sim beside threads": measure_threaded,
    "sim beside spawned gloo": measure_spawned,
    "sim beside warm gloo": measure_warm,
    "large worlds": measure_large,
    "the race detector": measure_detector,
}

_file = click.Path(dir_okay=False, path_type=Path)


@click.command(
    context_settings={"help_option_names": ["-h", "--help"]},
    help="Measure the harness beside threads and processes that play the same.",
)
@click.option("--json", "json_path", type=_file, help="Write all numbers here.")
@click.option(
    "--markdown",
    "document_path",
    type=_file,
    help="Replace the table between the markers of this document.",
)
@click.option(
    "--rounds",
    type=click.IntRange(min=MIN_ROUNDS),
    default=20,
    show_default=True,
    help="Of every measure that takes less than seconds.",
)
@click.option(
    "--smoke", is_flag=True, help="Try the command: tiny sizes, whose numbers are void."
)
def command(
    json_path: Path | None, document_path: Path | None, rounds: int, *, smoke: bool
) -> None:
    refuse_missing_folder(json_path)
    if smoke and document_path is not None:
        raise click.UsageError("--smoke measures nothing that a document could hold")
    if document_path is not None:
        place_of_tables(document_path, NAME)  # before minutes of work
    report = measure_all(SMOKE if smoke else Sizes(rounds))
    console = Console()
    console.print(report.table())
    console.print(report.machine.line, soft_wrap=True)
    if json_path is not None:
        json_path.write_text(json.dumps(report.to_json(), indent=2) + "\n")
    if document_path is not None:
        replace_tables(document_path, report.markdown(), NAME)


def measure_all(sizes: Sizes) -> Report:
    """Run every part, one after the other."""
    torch.set_num_threads(1)  # as the command line of the harness does
    machine = Machine.this()  # before its load is ours
    measures: list[Measure] = []
    for name, measure in PARTS.items():
        click.echo(f"measuring {name}", err=True)
        measures += measure(sizes)
    return Report(tuple(measures), {}, machine, sizes.rounds)


def main() -> None:
    """Run the command line and exit."""
    run_command(command, NAME, failures=(BrokenRunError, SyncverifyError))


if __name__ == "__main__":
    main()
