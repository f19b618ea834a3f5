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
from dataclasses import dataclass
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


@dataclass(frozen=True, slots=True, kw_only=True)
class Benchmark:
    """A benchmark that can be run from a command line.

    Attributes:
        name: Its module, such as `studies.benchmarks.harness`.
        summary: First line of its help.
        rounds: The option `--rounds`.
        measure_all: Measures with a number of rounds; None stands for tiny sizes.
        failures: Exceptions of a measured program that fails.
    """

    name: str
    summary: str
    rounds: click.Option
    measure_all: Callable[[int | None], Report]
    failures: tuple[type[Exception], ...]

    def main(self) -> NoReturn:
        """Run the command line and exit."""
        command = click.Command(
            self.name,
            context_settings={"help_option_names": ["-h", "--help"]},
            help=self.summary,
            params=[*_common_options(), self.rounds],
            callback=self._execute,
        )
        run_command(command, self.name, failures=self.failures)

    def _execute(
        self,
        json_path: Path | None,
        document_path: Path | None,
        rounds: int,
        *,
        smoke: bool,
    ) -> None:
        _refuse_missing_folder(json_path)
        if smoke and document_path is not None:
            raise click.UsageError(
                "--smoke measures nothing that a document could hold"
            )
        if document_path is not None:
            with_part(document_path, self.name, "")  # before minutes of work
        report = self.measure_all(None if smoke else rounds)
        console = Console()
        console.print(report.table())
        console.print(report.machine.line, soft_wrap=True)
        if json_path is not None:
            json_path.write_text(json.dumps(report.to_json(), indent=2) + "\n")
        if document_path is not None:
            write_part(document_path, self.name, report.markdown())


def _common_options() -> list[click.Parameter]:
    return [
        click.Option(
            ["--json", "json_path"], type=_FILE, help="Write all numbers here."
        ),
        click.Option(
            ["--markdown", "document_path"],
            type=_FILE,
            help="Replace the tables between the markers of this document.",
        ),
        click.Option(
            ["--smoke"],
            is_flag=True,
            help="Try the command with tiny sizes; the numbers have no meaning.",
        ),
    ]


def rounds_option(min_rounds: int, default: int, summary: str) -> click.Option:
    """Make the option `--rounds`; fewer have no meaning on a machine that others use too."""
    at_least = click.IntRange(min=min_rounds)
    return click.Option(
        ["--rounds"], type=at_least, default=default, show_default=True, help=summary
    )


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
        process_exit.complain(name, str(error), process_exit.BAD_USAGE)
    except failures as error:
        process_exit.complain(name, str(error), FAILED)


def _refuse_missing_folder(path: Path | None) -> None:
    """Refuse a file that cannot be written, before minutes of measurement."""
    if path is not None and not path.absolute().parent.is_dir():
        raise click.UsageError(f"cannot write {str(path)!r}: its folder does not exist")
