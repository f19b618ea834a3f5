"""A device module that records the calls to its streams, and gradients for it."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import SimpleNamespace
from typing import Any

import torch
from torch import nn
from torch.distributed.device_mesh import init_device_mesh

from tests.programs import parameter


class SimulatedStreams:
    """A device module in which every edge becomes a line of `log`."""

    def __init__(self) -> None:
        self.log: list[str] = []
        self._num_side = 0
        self._current = "main"

    def stream_named(self, name: str) -> "SimulatedStream":
        return SimulatedStream(name, self.log)

    def module(self) -> SimpleNamespace:
        return SimpleNamespace(
            Stream=lambda: self.stream_named("side"),
            current_stream=lambda: self.stream_named(self._current),
            stream=lambda stream: self.on(stream.name),
        )

    @contextmanager
    def on(self, name: str) -> Iterator[None]:
        previous, self._current = self._current, name
        yield
        self._current = previous

    @staticmethod
    def record_stream(_: torch.Tensor, stream: "SimulatedStream") -> None:
        stream.recorded()

    def all_reduce(self, tensor: torch.Tensor, **_: Any) -> SimpleNamespace:
        self.log.append(f"all_reduce on {self._current}")
        return SimpleNamespace(
            wait=lambda: self.log.append(f"work.wait on {self._current}")
        )

    def logged(self, what: str, result: Any = None) -> Callable[..., Any]:
        """Return an operator that is a line of `log`, in place of one of torch's."""

        def operator(*_: Any, **__: Any) -> Any:
            self.log.append(f"{what} on {self._current}")
            return result

        return operator

    def taken(self) -> list[str]:
        log, self.log[:] = list(self.log), []
        return log


class SimulatedStream:
    """A new object at each call, equal by name, as in torch.cuda."""

    def __init__(self, name: str, log: list[str]) -> None:
        self.name = name
        self._log = log

    def __eq__(self, other: object) -> bool:
        return isinstance(other, SimulatedStream) and other.name == self.name

    def __hash__(self) -> int:
        return hash(self.name)

    def recorded(self) -> None:
        self._log.append(f"memory outlives {self.name}")

    def wait_stream(self, stream: "SimulatedStream") -> None:
        self._log.append(f"{self.name} waits for {stream.name}")


def parameters(count: int) -> list[nn.Parameter]:
    mesh = init_device_mesh("cpu", (2,))
    return [parameter(mesh) for _ in range(count)]
