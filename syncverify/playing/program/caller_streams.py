"""Streams of the training program, ordered by the rules that torch sets for a caller.

A side stream waits for the caller's stream before it works, and the caller's stream waits for
the side stream afterwards. The caller's own work is then fully ordered, so a race in a trace
always involves work of the subject.

Source:
    "Stream semantics of backward passes" in torch's docs/source/notes/cuda.rst. On devices
    without streams, torch's stand-ins do nothing.
"""

from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager
from typing import Any

import torch


class CallerStreams:
    """The streams of one rank's training program, chosen by a word of the topic `launch`."""

    def __init__(self, launch: str, device: torch.device) -> None:
        self._launch = launch
        self._module: Any = torch.get_device_module(device)
        self._streams: dict[str, Any] = {}

    def for_bind(self) -> AbstractContextManager[None]:
        """Switch to the stream of `bind()` and `unbind()`."""
        return self._side_stream("bind", "bind_on_side_stream")

    def for_step(self, step: int) -> AbstractContextManager[None]:
        """Switch to the stream of a step."""
        name = f"step {step}" if self._launch == "step_on_new_stream" else "step"
        return self._side_stream(name, "step_on_new_stream", "step_on_side_stream")

    def for_forward(self, parameter: str) -> AbstractContextManager[None]:
        """Switch to the stream of a parameter's part of the forward."""
        return self._side_stream(parameter, "parameter_streams")

    @contextmanager
    def _side_stream(self, name: str, *launches: str) -> Iterator[None]:
        if self._launch not in launches:
            yield
            return
        if name not in self._streams:
            self._streams[name] = self._module.Stream()
        side, caller = self._streams[name], self._module.current_stream()
        # Work of the block may overlap with nothing that the caller queued before it, and
        # with nothing that the caller queues after it.
        side.wait_stream(caller)
        with self._module.stream(side):
            yield
        caller.wait_stream(side)
