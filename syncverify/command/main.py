"""The command line `syncverify`; its exit codes are in `process_exit.py`."""

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

from syncverify.command import process_exit
from syncverify.command.options import cli
from syncverify.errors import NoVerdictError, SyncverifyError, UsageError
from syncverify.plain_text import plain
from syncverify.trace.source_lines import working_directory

_CHANGED = "the subject, or what it imports, has changed torch so that it does not work"


def main(context_object: object = None) -> None:
    """Run the command line and exit; see `WHOLE_PROCESS`."""
    _prepare_process()
    try:
        with process_exit.handling_interrupts(
            lambda *_: process_exit.leave_interrupted()
        ):
            code = cli.main(standalone_mode=False, obj=context_object)
        process_exit.leave(code or 0)
    except click.ClickException as error:
        process_exit.complain(error.format_message(), process_exit.BAD_USAGE)
    except UsageError as error:
        process_exit.complain(str(error), process_exit.BAD_USAGE)
    except BrokenPipeError:  # as in `| head -1`
        _drop_stdout()
        process_exit.leave(process_exit.BROKEN_PIPE)
    except NoVerdictError as error:
        click.echo(
            f"{process_exit.COMMAND_NAME}: no verdict: {plain(str(error))}", err=True
        )
        process_exit.leave_at_once(
            process_exit.HARNESS_FAILED
        )  # a thread may wait for the rank that was lost
    except SyncverifyError as error:
        process_exit.complain(
            f"the harness itself failed: {error}", process_exit.HARNESS_FAILED
        )
    except ImportError as error:  # the error of a subject is a usage error
        if not (error.name or "").startswith("torch"):
            _complain_of_a_fault()
        words = f"torch {version('torch')} is not known to work: {plain(str(error))}. Nothing "
        words += "was judged. Use a release of torch that syncverify was tested with"
        process_exit.complain(words, process_exit.BAD_USAGE)
    except OSError as error:
        if error.errno != errno.ENOSPC:
            _complain_of_a_fault()
        _drop_stdout()
        process_exit.complain(
            "cannot print: No space left on device", process_exit.BAD_USAGE
        )
    except Exception:  # noqa: BLE001  # the last resort
        _complain_of_a_fault()


def _complain_of_a_fault() -> NoReturn:
    """Report a fault of ours, in an `except` block."""
    with suppress(Exception):  # a second fault explains no first one
        # The help needs no torch.
        from syncverify.sim.known_torch import fault_since_the_start

        if fault := fault_since_the_start():
            process_exit.complain(
                f"{_CHANGED}: {fault}. Nothing was judged", process_exit.BAD_USAGE
            )
    with suppress(AttributeError, OSError, ValueError):  # as in `complain`
        traceback.print_exc()
    words = "the harness itself failed; please report the traceback above"
    process_exit.complain(words, process_exit.HARNESS_FAILED)


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
        process_exit.complain(words, process_exit.BAD_USAGE)
