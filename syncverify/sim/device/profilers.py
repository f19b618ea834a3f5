"""torch's profiler on the thread of a rank: it starts and ends, and records nothing.

The profiler of a process follows one thread. Ranks that are threads would share it, and its C++
code would end the process. No time passes on a simulated GPU, so there is nothing to measure. A
real profiler also waits for the GPU when it ends. A program has to be right without it, so this
one does not.

Source:
    `torch.autograd.profiler.profile` calls these names, for `torch.profiler.profile` as well.
"""

from __future__ import annotations

import functools
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import torch

from syncverify.sim.device.device_functions import Replacement


class NothingProfiled:
    """The result of a profiler that recorded nothing."""

    def events(self) -> list[Any]:
        """Return no event."""
        return []

    experimental_event_tree = trace_activities = events

    def trace_start_ns(self) -> int:
        """Return the start of the trace, in ns."""
        return 0

    def save(self, path: str) -> None:
        """Write a trace without an event."""
        text = json.dumps({"schemaVersion": 1, "traceEvents": []})
        Path(path).write_text(text, encoding="utf-8")


def _make(original: Any, _: object, profiler: Any, *args: Any, **options: Any) -> None:
    original(profiler, *args, **options)
    profiler.use_device = None  # it would wait for the device


def profiler_names() -> Iterator[tuple[Any, str, Replacement]]:
    """Yield the owner and name of each attribute of the profiler, and its function on a rank."""
    module = torch.autograd.profiler
    for name in ("_prepare_profiler", "_enable_profiler", "_toggle_collection_dynamic"):
        yield module, name, lambda *_, **__: None
    yield module, "_disable_profiler", lambda *_, **__: NothingProfiled()
    yield torch.autograd, "_add_metadata_json", lambda *_, **__: None
    made = functools.partial(_make, module.profile.__init__)
    yield module.profile, "__init__", made
