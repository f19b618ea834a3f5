"""What the command lines of all benchmarks have in common.

Exit codes: 0 measured, whether or not targets are met, 1 what is measured failed, 2 bad
usage (one line on stderr), 130 interrupted.
"""

import os
import signal
import sys
import threading
from pathlib import Path

import click

from benchmarks.document import InvalidDocumentError

FAILED, BAD_USAGE, INTERRUPTED = 1, 2, 130
_INTERRUPT_GRACE_SECONDS = 5.0  # to end the ranks on the way out


def run_command(
    command: click.Command, name: str, *, failures: tuple[type[Exception], ...]
) -> None:
    """Run the command line of a benchmark and exit.

    Args:
        command: What to run.
        name: Its module, such as `benchmarks.harness`.
        failures: Exceptions that say why something cannot be measured.
    """

    def interrupt(_number: int, _frame: object) -> None:
        # Python drops an exception that falls into a finalizer, and then nothing else
        # would end the command; ranks end with it.
        end = threading.Timer(_INTERRUPT_GRACE_SECONDS, _leave_at_once, args=[name])
        end.daemon = True
        end.start()
        raise KeyboardInterrupt

    signal.signal(signal.SIGINT, interrupt)
    signal.signal(signal.SIGTERM, interrupt)
    try:
        sys.exit(command.main(prog_name=f"python -m {name}", standalone_mode=False))
    except click.ClickException as error:
        _complain(name, error.format_message(), BAD_USAGE)
    except InvalidDocumentError as error:
        _complain(name, str(error), BAD_USAGE)
    except failures as error:
        _complain(name, str(error), FAILED)
    except (click.Abort, KeyboardInterrupt):
        _complain(name, "interrupted", INTERRUPTED)


def refuse_missing_folder(path: Path | None) -> None:
    """Refuse to measure for minutes what cannot be written in the end."""
    if path is not None and not path.absolute().parent.is_dir():
        raise click.UsageError(f"cannot write {str(path)!r}: its folder does not exist")


def _leave_at_once(name: str) -> None:
    click.echo(f"{name}: interrupted", err=True)
    sys.stdout.flush()
    os._exit(INTERRUPTED)


def _complain(name: str, message: str, code: int) -> None:
    click.echo(f"{name}: {message}", err=True)
    sys.exit(code)
