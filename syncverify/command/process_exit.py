"""How the process of a command exits: its codes, its one line of complaint, its interrupts.

| code | meaning |
|---|---|
| 0 | scenarios were judged, and no violation was found |
| 1 | a violation |
| 2 | bad usage, subject or environment; one line on stderr |
| 3 | no verdict: the harness itself failed, or a process was lost and nothing explains it |
| 4 | less was covered than required, or no scenario was judged |
| 130 | interrupted |
| 141 | the reader of stdout is gone |
| 143 | ended by SIGTERM, by the kernel; all that was printed and saved before stays |
"""

from __future__ import annotations

import contextlib
import os
import signal
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, NoReturn

import click

from syncverify.errors import UsageError
from syncverify.plain_text import plain
from syncverify.processes.owner_link import Ends, tell_owner

COMMAND_NAME = "syncverify"
VIOLATION = 1
BAD_USAGE = 2
HARNESS_FAILED = 3
COVERAGE_GAP = 4
INTERRUPTED = 130  # by convention of shells: 128 + SIGINT
BROKEN_PIPE = 141  # by convention of shells: 128 + SIGPIPE
_GRACE_SECONDS = 5.0  # to end ranks on the way out
# The object of click's context where the process is there for the command alone.
WHOLE_PROCESS = object()


def run_command(command: click.Command, name: str) -> NoReturn:
    """Run a command line, which a user starts by a name, and exit with its result; None is 0."""
    try:
        with ending_when_interrupted(name=name):
            sys.exit(command.main(prog_name=name, standalone_mode=False))
    except click.ClickException as error:
        complain(error.format_message(), BAD_USAGE, name)
    except UsageError as error:
        complain(str(error), BAD_USAGE, name)


@contextmanager
def ending_when_interrupted(
    kept: Callable[[], str] = str, *, name: str = COMMAND_NAME
) -> Iterator[None]:
    """Raise KeyboardInterrupt on Ctrl-C, and make sure that the process ends.

    Python drops a KeyboardInterrupt that falls into a callback of the garbage collector
    or into a finalizer, and a search is full of both. SIGTERM keeps its meaning, which
    torchrun counts on: it ends a rank that hangs where no handler would ever run.

    `kept` says in a few words which results are not lost; it is called at the end.
    """

    def end() -> NoReturn:
        words = ""
        with contextlib.suppress(Exception):  # this process has to end
            words = kept()
        leave_interrupted(words, name)

    def interrupt(*_: object) -> None:
        timer = threading.Timer(_GRACE_SECONDS, end)
        timer.daemon = True
        timer.start()
        raise KeyboardInterrupt

    def dropped(unraisable: sys.UnraisableHookArgs) -> None:
        if issubclass(unraisable.exc_type, KeyboardInterrupt):
            end()
        report(unraisable)

    report = sys.unraisablehook
    sys.unraisablehook = dropped
    try:
        with handling_interrupts(interrupt):
            yield
    except (click.Abort, KeyboardInterrupt):
        end()
    finally:
        sys.unraisablehook = report


@contextmanager
def handling_interrupts(handler: Callable[[int, Any], object]) -> Iterator[None]:
    """Call a function on Ctrl-C in a block."""
    before = signal.signal(signal.SIGINT, handler)
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, before)


def leave_interrupted(kept: str = "", name: str = COMMAND_NAME) -> NoReturn:
    """End the process at once on Ctrl-C.

    An import of torch takes seconds. A KeyboardInterrupt within it prints a traceback, or
    is lost in C++ code.
    """
    click.echo(f"{name}: interrupted{kept and f'; {kept}'}", err=True)
    leave_at_once(INTERRUPTED)  # threads of ranks may still run


def leave_at_once(code: int) -> NoReturn:
    """End this process without waiting for its threads."""
    tell_end(code)
    os._exit(code)


def tell_end(code: int) -> None:
    """Tell the owner of the command that all was said, and the exit code.

    Every end of a process that may play scenarios comes here. The owner takes no code from
    elsewhere: the subject can exit as well.
    """
    for stream in (sys.stdout, sys.stderr):
        # A subject may have closed it, or put an object without this method in its place.
        with contextlib.suppress(AttributeError, ValueError):
            stream.flush()
    tell_owner(lambda: Ends(code))


def leave(code: int) -> NoReturn:
    """End this process in the usual way, with a code that its owner hears."""
    tell_end(code)
    sys.exit(code)


def complain(message: str, code: int, name: str = COMMAND_NAME) -> NoReturn:
    """Print one complaint on stderr, in one line if it is bad usage, and exit."""
    text = plain(message)
    line = " ".join(text.split()) if code == BAD_USAGE else text
    # The disk may be full, and the subject may have closed or replaced the stream.
    with contextlib.suppress(AttributeError, OSError, ValueError):
        click.echo(f"{name}: {line}", err=True)
    leave(code)
