"""Imports that take seconds, and when they are made."""

import gc
import importlib
from collections.abc import Iterator
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


def import_dynamo() -> None:
    """Import `torch._dynamo` now; it takes a second.

    The first DTensor of a process imports it. Within a rank's turn that would look like a
    hang, would count as time of the search, and interrupting an import breaks torch. Every
    backend calls this when it is opened, every worker before it is ready. It is no import
    at the top of a module, so that bad usage is answered without it.
    """
    with quick_imports():
        importlib.import_module("torch._dynamo")
