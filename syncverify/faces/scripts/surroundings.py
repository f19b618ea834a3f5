"""What a script does beside its training, on its rank.

- Functions that it registers with `atexit` run before the trace ends.
- A process that it forks ends where it leaves the script, and is no second rank.
- Each rank keeps its warnings, and each is shown once: all ranks give the same ones.
"""

from __future__ import annotations

import atexit
import os
import sys
import traceback
import warnings
from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any, NoReturn
from unittest.mock import patch

from syncverify.plain_text import named


@contextmanager
def exit_functions_run() -> Iterator[None]:
    """Run at the end of a block the functions that it registers at exit, the last one first.

    After a block that raises none of them runs, unless it raises `SystemExit`.

    Raises:
        SystemExit: The block raised it.
    """
    registered: list[tuple[Callable[..., Any], tuple[Any, ...], dict[str, Any]]] = []

    def register(function: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
        registered.append((function, args, kwargs))
        return function  # as a decorator

    def unregister(function: Callable[..., Any]) -> None:
        registered[:] = [each for each in registered if each[0] != function]

    def run_all() -> None:
        while registered:
            function, args, kwargs = registered.pop()
            try:
                function(*args, **kwargs)
            except Exception:  # noqa: BLE001  # Python, too, says so and goes on
                traceback.print_exc()

    with (
        patch.object(atexit, "register", register),
        patch.object(atexit, "unregister", unregister),
    ):
        try:
            yield
        except SystemExit:
            run_all()
            raise
        run_all()


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


@contextmanager
def warnings_kept() -> Iterator[dict[str, None]]:
    """Keep the warnings of a block, each once, as Python would show them."""
    kept = dict[str, None]()

    def keep(message: Any, category: Any, filename: str, lineno: int, *_: Any) -> None:
        kept[warnings.formatwarning(message, category, filename, lineno)] = None

    with patch.object(warnings, "showwarning", keep):
        yield kept


def show_warnings(of_ranks: Mapping[int, Sequence[str]]) -> None:
    """Show each warning once, with the ranks that gave it."""
    ranks_of = defaultdict[str, list[int]](list)
    for rank, of_rank in of_ranks.items():
        for each in of_rank:
            ranks_of[each].append(rank)
    for text, ranks in ranks_of.items():
        sys.stderr.write(f"{named('rank', ranks)}: {text}")
