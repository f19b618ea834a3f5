"""What the command lines of all benchmarks have in common.

Exit codes: 0 measured, whether or not targets are met, 1 what is measured failed, 2 bad
usage (one line on stderr), 130 interrupted.
"""

from pathlib import Path
from typing import NoReturn

import click

from benchmarks.document import InvalidDocumentError
from syncverify import command_line

FAILED = 1


def run_command(
    command: click.Command, name: str, *, failures: tuple[type[Exception], ...]
) -> NoReturn:
    """Run the command line of a benchmark and exit.

    Args:
        command: What to run.
        name: Its module, such as `benchmarks.harness`.
        failures: Exceptions that say why something cannot be measured.
    """
    name = f"python -m {name}"
    try:
        command_line.run_command(command, name)
    except InvalidDocumentError as error:
        command_line.complain(name, str(error), command_line.BAD_USAGE)
    except failures as error:
        command_line.complain(name, str(error), FAILED)


def refuse_missing_folder(path: Path | None) -> None:
    """Refuse to measure for minutes what cannot be written in the end."""
    if path is not None and not path.absolute().parent.is_dir():
        raise click.UsageError(f"cannot write {str(path)!r}: its folder does not exist")
