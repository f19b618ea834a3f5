"""How a command ends: with one line for bad usage, and for certain when interrupted."""

from __future__ import annotations

import os
import signal
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType
from typing import NoReturn

import click

BAD_USAGE = 2
INTERRUPTED = 130  # by convention of shells: 128 + SIGINT
_GRACE_SECONDS = 5.0  # to end ranks on the way out


def run_command(command: click.Command, name: str) -> NoReturn:
    """Run the command line and exit.

    Args:
        command: What to run; the exit code is what it returns, 0 for None.
        name: What starts it, such as `python -m peers`.
    """
    try:
        with ending_when_interrupted(name):
            sys.exit(command.main(prog_name=name, standalone_mode=False))
    except click.ClickException as error:
        complain(name, error.format_message(), BAD_USAGE)


@contextmanager
def ending_when_interrupted(name: str) -> Iterator[None]:
    """Make Ctrl-C end this process for certain.

    Python drops a KeyboardInterrupt that falls into a callback of the garbage collector
    or into a finalizer, and a search is full of both. SIGTERM keeps its meaning, which
    torchrun counts on: it ends a rank that hangs where no handler would ever run.

    Args:
        name: Of the command.
    """

    def end() -> None:
        click.echo(f"{name}: interrupted", err=True)
        leave_at_once(INTERRUPTED)  # rank threads may still play

    def interrupt(_number: int, _frame: FrameType | None) -> None:
        timer = threading.Timer(_GRACE_SECONDS, end)
        timer.daemon = True
        timer.start()
        raise KeyboardInterrupt

    def dropped(unraisable: sys.UnraisableHookArgs) -> None:
        if issubclass(unraisable.exc_type, KeyboardInterrupt):
            end()
        report(unraisable)

    before, report = signal.signal(signal.SIGINT, interrupt), sys.unraisablehook
    sys.unraisablehook = dropped
    try:
        yield
    except (click.Abort, KeyboardInterrupt):
        end()
    finally:
        sys.unraisablehook = report
        signal.signal(signal.SIGINT, before)


def leave_at_once(code: int) -> None:
    """End this process, whatever its threads are doing.

    Args:
        code: Its exit code.
    """
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(code)


def complain(name: str, message: str, code: int) -> NoReturn:
    """Say on stderr what is wrong, and exit.

    Args:
        name: Of the command.
        message: What is wrong; bad usage is told in one line.
        code: The exit code.
    """
    line = " ".join(message.split()) if code == BAD_USAGE else message
    click.echo(f"{name}: {line}", err=True)
    sys.exit(code)
