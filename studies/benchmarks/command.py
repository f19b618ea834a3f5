"""The command line that all benchmarks share.

| exit code | meaning |
|---|---|
| 0 | measured; targets may be met or missed |
| 1 | the measured program failed |
| 2 | bad usage; one line on stderr |
| 130 | interrupted |
"""

import gc
import json
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import NoReturn

import click
from rich.console import Console

from studies.benchmarks.measure import Measure
from studies.benchmarks.report import Report
from studies.documents import with_part, write_part
from syncverify.command import process_exit
from syncverify.errors import UsageError

FAILED = 1
_FILE = click.Path(dir_okay=False, path_type=Path)


def run_benchmark(
    name: str,
    measure_all: Callable[[int | None], Report],
    *,
    rounds: tuple[int, int],
    failures: tuple[type[Exception], ...],
) -> NoReturn:
    """Run the command line of a benchmark and exit.

    Args:
        name: Its module, such as `studies.benchmarks.harness`.
        measure_all: Measures with a number of rounds; None stands for tiny sizes.
        rounds: Smallest and usual number; fewer have no meaning on a machine that others use too.
        failures: Exceptions of a measured program that fails.
    """

    @click.command(name, context_settings={"help_option_names": ["-h", "--help"]})
    @click.option("--json", "json_path", type=_FILE, help="Write all numbers here.")
    @click.option(
        "--markdown", "document_path", type=_FILE,
        help="Replace the tables between the markers of this document.",
    )  # fmt: skip
    @click.option(
        "--smoke", is_flag=True,
        help="Try the command with tiny sizes; the numbers have no meaning.",
    )  # fmt: skip
    @click.option(
        "--rounds", "num_rounds", type=click.IntRange(min=rounds[0]), default=rounds[1],
        show_default=True, help="Rounds of each measure that takes less than a second.",
    )  # fmt: skip
    def command(
        json_path: Path | None,
        document_path: Path | None,
        num_rounds: int,
        *,
        smoke: bool,
    ) -> None:
        """Measure contestants that take turns, and print each number beside its target."""
        _refuse_missing_folder(json_path)
        if smoke and document_path is not None:
            raise click.UsageError(
                "--smoke measures nothing that a document could hold"
            )
        if document_path is not None:
            with_part(document_path, name, "")  # before minutes of work
        report = measure_all(None if smoke else num_rounds)
        console = Console()
        console.print(report.table())
        console.print(report.machine.line, soft_wrap=True)
        if json_path is not None:
            json_path.write_text(json.dumps(report.to_json(), indent=2) + "\n")
        if document_path is not None:
            write_part(document_path, name, report.markdown())

    run_command(command, name, failures=failures)


def measure_parts(
    parts: Mapping[str, Callable[..., list[Measure]]], *arguments: object
) -> tuple[Measure, ...]:
    """Run every part of a benchmark, one after the other, and name each on stderr."""
    measures: list[Measure] = []
    for name, measure in parts.items():
        click.echo(f"measuring {name}", err=True)
        # No collection of garbage looks at what earlier parts have left.
        gc.collect()
        gc.freeze()
        measures += measure(*arguments)
    return tuple(measures)


def run_command(
    command: click.Command, name: str, *, failures: tuple[type[Exception], ...]
) -> NoReturn:
    """Run the command line of the module `name` and exit; `failures` exit with 1."""
    name = f"python -m {name}"
    try:
        process_exit.run_command(command, name)
    except UsageError as error:
        process_exit.complain(str(error), process_exit.BAD_USAGE, name)
    except failures as error:
        process_exit.complain(str(error), FAILED, name)


def _refuse_missing_folder(path: Path | None) -> None:
    """Refuse a file that cannot be written, before minutes of measurement."""
    if path is not None and not path.absolute().parent.is_dir():
        raise click.UsageError(f"cannot write {str(path)!r}: its folder does not exist")
