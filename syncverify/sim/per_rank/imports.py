"""Imports that a rank makes: what they change, they change for all ranks.

The only module that touches `importlib._bootstrap`. It relies on Python to look
`_find_and_load` up there for each module that is not loaded, and on nothing else; a test says
so.
"""

from __future__ import annotations

import importlib
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from typing import Any
from unittest import mock

from syncverify.sim.turns.scheduler import own_rank


@contextmanager
def imports_apart(
    apart: Callable[[], AbstractContextManager[None]],
) -> Iterator[None]:
    """Run each import of a rank within a context, for a block; an import within it runs plainly."""
    bootstrap: Any = importlib._bootstrap  # noqa: SLF001
    load = bootstrap._find_and_load  # noqa: SLF001
    is_importing = False

    def load_apart(*args: Any) -> Any:
        nonlocal is_importing
        if is_importing or own_rank() is None:
            return load(*args)
        is_importing = True
        try:
            with apart():
                return load(*args)
        finally:
            is_importing = False

    with mock.patch.object(bootstrap, "_find_and_load", load_apart):
        yield
