"""The command line `syncverify`; its exit codes are in `process_exit.py`."""

from __future__ import annotations

import io
import os
import sys
import traceback

import click

from syncverify.command.options import cli
from syncverify.command.process_exit import (
    BAD_USAGE,
    BROKEN_PIPE,
    COMMAND_NAME,
    HARNESS_FAILED,
    complain,
    leave_at_once,
    leaving_when_interrupted,
    tell_end,
)
from syncverify.errors import NoVerdictError, SyncverifyError, UsageError
from syncverify.plain_text import plain


def main() -> None:
    """Run the command line and exit."""
    for stream in (sys.stdout, sys.stderr):  # a terminal may know fewer characters
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="backslashreplace")
    try:
        with leaving_when_interrupted(COMMAND_NAME):
            result = cli.main(standalone_mode=False)
        code = result if isinstance(result, int) else 0
        tell_end(code)
        sys.exit(code)
    except click.exceptions.Exit as error:
        sys.exit(error.exit_code)
    except click.ClickException as error:
        complain(COMMAND_NAME, error.format_message(), BAD_USAGE)
    except UsageError as error:
        complain(COMMAND_NAME, str(error), BAD_USAGE)
    except BrokenPipeError:  # as in `| head -1`
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        tell_end(BROKEN_PIPE)
        sys.exit(BROKEN_PIPE)
    except NoVerdictError as error:
        click.echo(f"{COMMAND_NAME}: no verdict: {plain(str(error))}", err=True)
        leave_at_once(HARNESS_FAILED)  # a thread may wait for the rank that was lost
    except SyncverifyError as error:
        complain(COMMAND_NAME, f"the harness itself failed: {error}", HARNESS_FAILED)
    except Exception:  # noqa: BLE001  # the last resort: a fault of ours
        traceback.print_exc()
        complain(
            COMMAND_NAME,
            "the harness itself failed; please report the traceback above",
            HARNESS_FAILED,
        )
