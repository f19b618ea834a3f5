"""On which streams a training program works, ordered as torch asks of a caller.

A stream waits for what it uses of another one before it begins, and is waited for
before anybody uses what it made: "Stream semantics of backward passes" in
docs/source/notes/cuda.rst. On devices without streams, torch's stand-ins do nothing.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from typing import Any

import torch


class CallerStreams:
    """The streams of one rank's training program.

    Args:
        launch: Which it works on; of `LAUNCHES`.
        device: Of the parameters.
    """

    def __init__(self, launch: str, device: torch.device) -> None:
        self._launch = launch
        self._module: Any = torch.get_device_module(device)
        self._streams: dict[str, Any] = {}

    def binding(self) -> AbstractContextManager[None]:
        """Be where `bind()` and `unbind()` are called."""
        return self._aside("bind", wanted=self._launch == "bind_on_side_stream")

    def stepping(self) -> AbstractContextManager[None]:
        """Be where a step runs."""
        return self._aside("step", wanted=self._launch == "step_on_side_stream")

    def using(self, parameter: str) -> AbstractContextManager[None]:
        """Be where a parameter's part of the forward runs."""
        return self._aside(parameter, wanted=self._launch == "parameter_streams")

    def _aside(self, name: str, *, wanted: bool) -> AbstractContextManager[None]:
        return self._on(name) if wanted else nullcontext()

    @contextmanager
    def _on(self, name: str) -> Iterator[None]:
        if name not in self._streams:
            self._streams[name] = self._module.Stream()
        own, caller = self._streams[name], self._module.current_stream()
        own.wait_stream(caller)
        with self._module.stream(own):
            yield
        caller.wait_stream(own)
