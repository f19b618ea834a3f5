"""The side stream on which reductions run, one for each device.

Everything that is known about streams goes through this seam, and only through what
`torch.cuda`, `torch.cpu` and other device modules have in common: `Stream`,
`current_stream`, `stream` and `Stream.wait_stream`. On CPU torch's streams do nothing,
which is right: there the host itself runs the kernels, one after the other.
"""

from collections.abc import Iterable
from contextlib import AbstractContextManager
from typing import Any, Protocol, cast

import torch


class Stream(Protocol):
    """A queue of device work; equal and hash-equal when it is the same queue."""

    def wait_stream(self, stream: Any) -> None:
        """Run later work only after everything now queued on another stream."""


class SideStream:
    """A stream of its own for communication, next to those that compute.

    Args:
        device: Where the gradient buffers live.
    """

    def __init__(self, device: torch.device) -> None:
        self._module = torch.get_device_module(device.type)
        # CPU tensors carry no device index, and `torch.cpu.Stream` takes no device.
        self._device = {} if device.index is None else {"device": device}
        self._stream = cast("Stream", self._module.Stream(**self._device))

    def current(self) -> Stream:
        """Return the stream to which the calling thread queues work."""
        return cast("Stream", self._module.current_stream(**self._device))

    def activate(self) -> AbstractContextManager[None]:
        """Return a context in which the calling thread queues work here."""
        return cast("AbstractContextManager[None]", self._module.stream(self._stream))

    def wait_for(self, streams: Iterable[Stream]) -> None:
        """Run later work of the side stream only after what `streams` hold now.

        Args:
            streams: Those that wrote what the side stream is going to read.
        """
        for stream in streams:
            self._stream.wait_stream(stream)

    def outlives_current(self, tensor: torch.Tensor) -> None:
        """Let a tensor's memory outlive what the current stream now does with it.

        Args:
            tensor: One that somebody else made, maybe on another stream, and that may be
                given up at once. If it was made here, this costs nothing.
        """
        current = self.current()
        if isinstance(
            current, torch.Stream
        ):  # those of CPUs queue nothing, and are none
            tensor.record_stream(current)

    def release_to(self, stream: Stream) -> None:
        """Run later work of `stream` only after what the side stream holds now.

        Args:
            stream: The one that is going to read, overwrite or free the memory.
        """
        stream.wait_stream(self._stream)
