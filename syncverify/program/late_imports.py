"""The import of `torch._dynamo`, which the first DTensor would do within a rank's turn."""

from __future__ import annotations

import importlib


def import_dynamo() -> None:
    """Import `torch._dynamo` now; it takes a second.

    The first DTensor of a process imports it. Within a rank's turn that would look like a
    hang, would count as time of the search, and interrupting an import breaks torch. Every
    backend calls this when it is opened, every worker before it is ready. It is no import
    at the top of a module, so that bad usage is answered without it.
    """
    importlib.import_module("torch._dynamo")
