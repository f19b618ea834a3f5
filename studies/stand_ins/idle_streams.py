"""Streams for subjects that ask `torch.cuda` for them where there is no GPU.

A CPU runs every operator at once and in order, so that a stream has nothing to do; torch
itself has such stand-ins under `torch.cpu`, with less of the interface.
"""

from typing import Any, Self

import torch
from typing_extensions import override


class IdleEvent:
    """An event that has always happened, with the interface of `torch.cuda.Event`."""

    def __init__(self, *_: Any, **__: Any) -> None:
        pass

    def record(self, stream: object = None) -> None:
        """Do nothing."""

    def wait(self, stream: object = None) -> None:
        """Do nothing."""

    def synchronize(self) -> None:
        """Do nothing."""

    def query(self) -> bool:
        """Say that it has happened."""
        return True


class IdleStream(torch.cpu.Stream):
    """A stream that never holds work, with the interface of `torch.cuda.Stream`."""

    def __init__(self, *_: Any, **__: Any) -> None:
        super().__init__()

    @override
    def record_event(  # type: ignore[override]  # torch.cpu's takes and returns nothing
        self, event: IdleEvent | None = None
    ) -> IdleEvent:
        """Return an event that has happened."""
        return event or IdleEvent()

    def synchronize(self) -> None:
        """Do nothing."""

    def query(self) -> bool:
        """Say that it holds nothing."""
        return True

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        pass


_DEFAULT = IdleStream()


def install() -> None:
    """Put the stand-ins behind torch's names, for the rest of this process.

    Call it only in a process that works on a CPU: the streams of a GPU are not played.
    """
    cuda: Any = torch.cuda
    cuda.Stream, cuda.Event, cuda.stream = IdleStream, IdleEvent, torch.cpu.stream
    cuda.current_stream = cuda.default_stream = lambda *_, **__: _DEFAULT
    cuda.synchronize = lambda *_, **__: None
    tensor: Any = torch.Tensor
    tensor.record_stream = lambda *_: None
