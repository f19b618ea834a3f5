"""Processes that a script forks: each ends where it leaves the script, and is no second rank."""

from __future__ import annotations

import os
import sys
import traceback
from collections.abc import Iterator
from contextlib import contextmanager
from typing import NoReturn


@contextmanager
def forked_processes_end() -> Iterator[None]:
    """End a process that the block has forked, as Python ends it, where it leaves the block."""
    process = os.getpid()
    try:
        yield
    except BaseException as error:
        if os.getpid() == process:
            raise
        _end(_exit_code(error))
    if os.getpid() != process:
        _end(0)


def _exit_code(error: BaseException) -> int:
    """Return the exit code of an error, which is printed as Python prints it."""
    if not isinstance(error, SystemExit):
        traceback.print_exception(error)
        return 1
    if isinstance(error.code, int):
        return error.code
    if error.code is not None:
        sys.stderr.write(f"{error.code}\n")
    return int(error.code is not None)


def _end(code: int) -> NoReturn:
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(code)
