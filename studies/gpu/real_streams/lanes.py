"""The streams of one rank on a device, and the delays on one kind of them."""

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, Literal
from unittest.mock import patch

import torch

Kind = Literal["main", "communication", "first side", "other side"]
KINDS: tuple[Kind, ...] = ("main", "communication", "first side", "other side")
# About a millisecond: longer than the host takes from one operator to the next.
_SLEEP_CYCLES = 1_500_000
_OF_THREAD = threading.local()


class Lanes:
    """The streams of one rank.

    Args:
        device: Device of the streams; the streams of a CPU order nothing.
        slow: Kind of streams whose work is delayed; None delays nothing.
    """

    def __init__(self, device: torch.device, slow: Kind | None) -> None:
        self.module: Any = torch.get_device_module(device)
        self.main = self.module.Stream()
        self._sleeps = device.type == "cuda"
        self._slow = slow
        self._communication: dict[str, Any] = {}
        self._sides: list[Any] = []

    @contextmanager
    def as_current(self) -> Iterator[None]:
        """Make the main stream current on the calling thread."""
        before = getattr(_OF_THREAD, "main", None)
        _OF_THREAD.main = self.main
        try:
            with self.module.stream(self.main):
                yield
        finally:
            _OF_THREAD.main = before

    def communication(self, communicator: str) -> Any:
        """Return the stream on which a communicator works."""
        if communicator not in self._communication:
            self._communication[communicator] = self.module.Stream()
        return self._communication[communicator]

    def current(self) -> Any:
        """Return the stream on which the calling thread queues work."""
        return self.module.current_stream()

    def name(self) -> str:
        """Name the current stream as traces do."""
        kind = self.kind(self.current())
        if "side" not in kind:
            return "default stream" if kind == "main" else kind
        return f"stream {self._sides.index(self.current()) + 1}"

    def kind(self, stream: Any) -> Kind:
        """Return the kind of a stream."""
        if stream == self.main:
            return "main"
        if stream in self._communication.values():
            return "communication"
        if stream not in self._sides:
            self._sides.append(stream)
        return "first side" if self._sides[0] == stream else "other side"

    def delay(self) -> None:
        """Delay what is queued on the current stream from now on, if it is slow."""
        if self._sleeps and self.kind(self.current()) == self._slow:
            torch.cuda._sleep(_SLEEP_CYCLES)  # noqa: SLF001  # torch has no other one


@contextmanager
def default_streams_of_ranks() -> Iterator[None]:
    """Let `torch.cuda.default_stream()` return the main stream of the calling rank."""
    original = torch.cuda.default_stream

    def default_stream(device: Any = None) -> Any:
        return getattr(_OF_THREAD, "main", None) or original(device)

    with patch.object(torch.cuda, "default_stream", default_stream):
        yield
