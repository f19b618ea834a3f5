"""The command line: `python -m benchmarks.synchronizer`.

Exit codes: 0 measured, whether or not targets are met, 1 a rank failed, 2 bad usage
(one line on stderr), 130 interrupted.
"""

import json
from collections.abc import Callable
from pathlib import Path

import click
from rich.console import Console

from benchmarks.command import refuse_missing_folder, run_command
from benchmarks.document import place_of_tables, replace_tables
from benchmarks.measure import Measure
from benchmarks.report import Machine, Report
from benchmarks.rounds import Rounds
from benchmarks.synchronizer.d9d_steps import measure_d9d
from benchmarks.synchronizer.hooks import measure_hooks
from benchmarks.synchronizer.links import measure_links
from benchmarks.synchronizer.memory import memory_of
from benchmarks.synchronizer.mesh import measure_mesh
from benchmarks.synchronizer.ranks import RankFailedError
from benchmarks.synchronizer.sizes import FULL, SMOKE, Sizes
from benchmarks.synchronizer.steps import measure_steps

NAME = "benchmarks.synchronizer"
MIN_ROUNDS = 20  # fewer say nothing on a machine that others use too
SMOKE_ROUNDS = Rounds(count=2, warm_up=3)
PARTS: dict[str, Callable[[Sizes, Rounds], list[Measure]]] = {
    "steps beside DDP": measure_steps,
    "steps beside d9d": measure_d9d,
    "sums over a mesh": measure_mesh,
    "hooks": measure_hooks,
    "simulated links": measure_links,
}

_file = click.Path(dir_okay=False, path_type=Path)


@click.command(
    context_settings={"help_option_names": ["-h", "--help"]},
    help="Measure the gradient synchronizer beside DDP, d9d and plain all-reduce.",
)
@click.option("--json", "json_path", type=_file, help="Write all numbers here.")
@click.option(
    "--markdown",
    "document_path",
    type=_file,
    help="Replace the tables between the markers of this document.",
)
@click.option(
    "--rounds",
    type=click.IntRange(min=MIN_ROUNDS),
    default=30,
    show_default=True,
    help="Of every measure.",
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
    report = measure_all(
        SMOKE if smoke else FULL, SMOKE_ROUNDS if smoke else Rounds(rounds)
    )
    console = Console()
    console.print(report.table())
    lines = (*report.memory_lines(), report.machine.line)
    console.print(*lines, sep="\n", soft_wrap=True)
    if json_path is not None:
        json_path.write_text(json.dumps(report.to_json(), indent=2) + "\n")
    if document_path is not None:
        replace_tables(document_path, report.markdown(), NAME)


def measure_all(sizes: Sizes, rounds: Rounds) -> Report:
    """Run every part, one after the other."""
    machine = Machine.this()  # before its load is ours
    measures: list[Measure] = []
    for name, measure in PARTS.items():
        click.echo(f"measuring {name}", err=True)
        measures += measure(sizes, rounds)
    memory = {
        label: memory_of(size, sizes.bucket_mib) for label, size in sizes.models.items()
    }
    return Report(tuple(measures), memory, machine, rounds.count)


def main() -> None:
    """Run the command line and exit."""
    run_command(command, NAME, failures=(RankFailedError,))


if __name__ == "__main__":
    main()
