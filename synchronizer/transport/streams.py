"""The side stream on which reductions run, one for each device.

No other module of the synchronizer names a device module of torch. This one uses only
the names that `torch.cuda`, `torch.cpu` and others share: `Stream`, `current_stream`,
`stream` and `Stream.wait_stream`. On CPU torch's streams do nothing, which is right:
there the host itself runs the kernels, one after the other.
"""

from collections.abc import Iterable
from contextlib import AbstractContextManager
from typing import Any, Protocol, cast

import torch


class Stream(Protocol):
    """A queue of device work; equal and hash-equal when it is the same queue."""

    def wait_stream(self, stream: Any) -> None:
        """Run later work of this stream after all work now queued on another stream."""


class SideStream:
    """A stream for communication, beside the streams that compute on a device."""

    def __init__(self, device: torch.device) -> None:
        self._module = torch.get_device_module(device.type)
        # CPU tensors carry no device index, and `torch.cpu.Stream` takes no device.
        self._device = {} if device.index is None else {"device": device}
        self._stream = cast("Stream", self._module.Stream(**self._device))
        # Streams of CPUs queue nothing, and are not instances of `torch.Stream`.
        self.queues = isinstance(self._stream, torch.Stream)

    def current(self) -> Stream:
        """Return the stream on which the calling thread queues work."""
        return cast("Stream", self._module.current_stream(**self._device))

    def activate(self) -> AbstractContextManager[None]:
        """Return a context in which the thread queues work on the side stream."""
        return cast("AbstractContextManager[None]", self._module.stream(self._stream))

    def wait_for(self, streams: Iterable[Stream]) -> None:
        """Run later work of the side stream after all work now queued on `streams`.

        The streams wrote or read memory that the side stream is going to use.
        """
        for stream in streams:
            self._stream.wait_stream(stream)

    def record_use_on_current(self, tensor: torch.Tensor) -> None:
        """Keep a tensor's memory until the work now on the current stream is done.

        The tensor belongs to other code, possibly to another stream, and may be freed
        at once. Costs nothing for a tensor of the current stream.
        """
        if self.queues:
            # When may the memory be reused: the allocator gives it back to the stream of
            # the allocation, and waits for the work recorded here first.
            tensor.record_stream(cast("torch.Stream", self.current()))

    def release_to(self, stream: Stream) -> None:
        """Run later work of `stream` after all work now queued on the side stream.

        The stream is going to read, overwrite or free the memory.
        """
        stream.wait_stream(self._stream)
