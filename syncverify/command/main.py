"""The command line `syncverify`; its exit codes are in `process_exit.py`."""

from __future__ import annotations

import errno
import io
import os
import signal
import sys
import traceback
from contextlib import suppress
from importlib.metadata import version
from typing import NoReturn

import click

from syncverify.command.options import cli
from syncverify.command.process_exit import (
    BAD_USAGE,
    BROKEN_PIPE,
    COMMAND_NAME,
    HARNESS_FAILED,
    complain,
    handling_interrupts,
    leave,
    leave_at_once,
    leave_interrupted,
)
from syncverify.errors import NoVerdictError, SyncverifyError, UsageError
from syncverify.plain_text import plain
from syncverify.trace.source_lines import working_directory

_CHANGED = "the subject, or what it imports, has changed torch so that it does not work"


def main(context_object: object = None) -> None:
    """Run the command line and exit; see `WHOLE_PROCESS`."""
    _prepare_process()
    try:
        with handling_interrupts(lambda *_: leave_interrupted()):
            code = cli.main(standalone_mode=False, obj=context_object)
        leave(code or 0)
    except click.ClickException as error:
        complain(error.format_message(), BAD_USAGE)
    except UsageError as error:
        complain(str(error), BAD_USAGE)
    except BrokenPipeError:  # as in `| head -1`
        _drop_stdout()
        leave(BROKEN_PIPE)
    except NoVerdictError as error:
        click.echo(f"{COMMAND_NAME}: no verdict: {plain(str(error))}", err=True)
        leave_at_once(HARNESS_FAILED)  # a thread may wait for the rank that was lost
    except SyncverifyError as error:
        complain(f"the harness itself failed: {error}", HARNESS_FAILED)
    except ImportError as error:  # the error of a subject is a usage error
        if not (error.name or "").startswith("torch"):
            _complain_of_a_fault()
        words = f"torch {version('torch')} is not known to work: {plain(str(error))}. Nothing "
        words += "was judged. Use a release of torch that syncverify was tested with"
        complain(words, BAD_USAGE)
    except OSError as error:
        if error.errno != errno.ENOSPC:
            _complain_of_a_fault()
        _drop_stdout()
        complain("cannot print: No space left on device", BAD_USAGE)
    except Exception:  # noqa: BLE001  # the last resort
        _complain_of_a_fault()


def _complain_of_a_fault() -> NoReturn:
    """Report a fault of ours, in an `except` block."""
    with suppress(Exception):  # a second fault explains no first one
        # The help needs no torch.
        from syncverify.sim.known_torch import fault_since_the_start

        if fault := fault_since_the_start():
            complain(f"{_CHANGED}: {fault}. Nothing was judged", BAD_USAGE)
    with suppress(AttributeError, OSError, ValueError):  # as in `complain`
        traceback.print_exc()
    words = "the harness itself failed; please report the traceback above"
    complain(words, HARNESS_FAILED)


def _drop_stdout() -> None:
    """Let nothing more be printed: Python flushes stdout once more at its end."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


def _prepare_process() -> None:
    """Give the process its streams and signals; exit if the working directory is gone."""
    for name in ("stdin", "stdout", "stderr"):  # a descriptor is free if one is closed
        if getattr(sys, name) is None:
            setattr(sys, name, open(os.devnull, "r+"))  # noqa: SIM115, PTH123
    for stream in (sys.stdout, sys.stderr):  # a terminal may know fewer characters
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="backslashreplace")
    # An ignored signal is inherited, and the kernel keeps no exit codes of children then.
    signal.signal(signal.SIGCHLD, signal.SIG_DFL)
    if not working_directory():
        words = "the working directory was deleted; change to another one"
        complain(words, BAD_USAGE)
