"""Streams where work runs at once: of real processes on the CPU, and of `fake`.

A subject may take streams and events from `torch.cuda` by name. Here they are objects that
record nothing: every operator has run when the next line runs, so all orders hold already, and
no order is judged. A GPU is still missing: `torch.cuda.is_available()` is false, and a tensor on
a CUDA device is refused.
"""

from __future__ import annotations

import itertools
import threading
from collections.abc import Iterator
from contextlib import AbstractContextManager
from typing import Any

import torch

from syncverify.sim.device.device_functions import Replacement
from syncverify.sim.device.device_modules import (
    Find,
    by_thread,
    installed,
    stream_names,
)
from syncverify.sim.device.virtual_streams import VirtualStream
from syncverify.trace.records import DEFAULT_STREAM
from syncverify.trace.source_lines import Origin


class HostStreams:
    """The streams of one rank, on all of its threads."""

    seen = None  # the rank hears of the device what torch says

    def __init__(self) -> None:
        self.default = VirtualStream(
            self, DEFAULT_STREAM
        )  # current at first on every thread
        self.engine = self  # answers for the current stream
        self._numbers = {self.default.name: 0}
        self._marks = itertools.count(1)
        self._thread = threading.local()

    def create(self, device: Any = None, priority: int = 0) -> VirtualStream:
        """Make a stream."""
        number = len(self._numbers)
        stream = VirtualStream(self, f"stream {number}", device, priority)
        self._numbers[stream.name] = number
        return stream

    def number_of(self, stream: VirtualStream) -> int:
        """Return the position of a stream in order of creation."""
        return self._numbers[stream.name]

    def current(self) -> VirtualStream:
        """Return the current stream of the calling thread."""
        stream: VirtualStream = getattr(self._thread, "current", self.default)
        return stream

    def set_current(self, stream: VirtualStream) -> None:
        """Make a stream current on the calling thread."""
        self._thread.current = stream

    def push(self, stream: VirtualStream) -> None:
        """Make a stream current until `pop`."""
        self._previous().append(self.current())
        self.set_current(stream)

    def pop(self) -> None:
        """Make the stream current that was current before the matching `push`."""
        self.set_current(self._previous().pop())

    def _previous(self) -> list[VirtualStream]:
        previous: list[VirtualStream] = self._thread.__dict__.setdefault("previous", [])
        return previous

    def mark(self, _stream: VirtualStream, _origin: Origin | None = None) -> int:
        """Return the number of a new mark, which all work so far has passed."""
        return next(self._marks)

    def wait(
        self, _stream: VirtualStream, _mark: int, _origin: Origin | None = None
    ) -> None:
        """Do nothing: the work before the mark has run."""

    def wait_on_host(self, _mark: int, *, is_asked_for: bool = False) -> None:
        """Do nothing: the work before the mark has run."""

    def synchronize(self) -> None:
        """Do nothing: all work has run."""

    def is_done(self, _mark: int) -> bool:
        """Return True: the work before the mark has run."""
        return True

    def is_idle(self, _stream: VirtualStream) -> bool:
        """Return True: all work has run."""
        return True


def host_streams(find: Find) -> AbstractContextManager[None]:
    """Return a block in which streams that order nothing are behind torch's names.

    `find` returns the `HostStreams` of the calling thread; None leaves torch's own.
    """
    return installed(itertools.chain(stream_names(find), _memory(find)))


def _memory(find: Find) -> Iterator[tuple[Any, str, Any]]:
    """Yield functions about memory that torch offers beside a GPU only."""
    for name, virtual in _MEMORY.items():
        original = getattr(torch.Tensor, name)
        yield torch.Tensor, name, by_thread(original, virtual, find=find)


_MEMORY: dict[str, Replacement] = {
    "pin_memory": lambda _, tensor, *__: tensor.clone(),
    "record_stream": lambda *_: None,
}
