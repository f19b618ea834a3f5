"""Functions that a script registers with `atexit`: they run on its rank, before the trace ends."""

from __future__ import annotations

import atexit
import traceback
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any
from unittest.mock import patch


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
