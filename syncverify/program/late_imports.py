"""Imports that take seconds, and when they are made."""

from __future__ import annotations

import gc
import importlib
from collections.abc import Callable, Iterator
from contextlib import contextmanager


@contextmanager
def quick_imports() -> Iterator[None]:
    """Collect no garbage in a block that imports: it leaves none, and a fifth of the time is saved."""
    was_enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was_enabled:
            gc.enable()


def after_imports(
    play: Callable[[], None], meanwhile: Callable[[], None] | None = None
) -> Callable[[], None]:
    """Return a function that imports the modules of a search, and then plays.

    No later collection looks at the objects of these modules, hundreds of thousands: each
    search ends with a collection, for the lines of finalizers. The subject is not there yet.

    Args:
        play: Plays scenarios.
        meanwhile: Called first; starts work that goes on beside the imports.

    Returns:
        The function.
    """

    def imported() -> None:
        if meanwhile is not None:
            meanwhile()
        with quick_imports():
            importlib.import_module("syncverify.verification.reported_search")
        gc.freeze()
        play()

    return imported


def import_dynamo() -> None:
    """Import `torch._dynamo` now; it takes a second.

    The first DTensor of a process imports it. Within a rank's turn that would look like a
    hang, would count as time of the search, and interrupting an import breaks torch. Every
    backend calls this when it is opened, every worker before it is ready. It is no import
    at the top of a module, so that bad usage is answered without it.
    """
    with quick_imports():
        importlib.import_module("torch._dynamo")
