"""A simulated link: a process group that sleeps for the travel time of each message.

Nothing is sent and nothing is summed. A message takes `latency + bytes / bandwidth`, and
messages travel one after the other. Meanwhile the cores are free, as while a network card
or a GPU works; gloo would use them. Each rank has one link, and no rank waits for another.
"""

# torch's stubs overload these methods for call styles that no caller uses here.
# mypy: disable-error-code="override"

import queue
import threading
import time
from datetime import timedelta
from typing import Any

import torch
import torch.distributed as dist
from typing_extensions import override

from studies.benchmarks.synchronizer.sizes import LinkSize

BACKEND_NAME = "simulated_link"

Arrival = torch.futures.Future[Any]


class _Message(dist.Work):
    """A collective that ends with its future."""

    def __init__(self, arrival: Arrival) -> None:
        super().__init__()
        self._arrival = arrival

    @override
    def wait(self, timeout: timedelta | None = None) -> bool:
        self._arrival.wait()
        return True

    @override
    def get_future(self) -> Arrival:
        return self._arrival


class LinkProcessGroup(dist.ProcessGroup):
    """Sends `allreduce` over the simulated link; all other collectives end at once."""

    def __init__(self, rank: int, size: int) -> None:
        super().__init__(rank, size)  # type: ignore[call-arg]  # an overload torch's stub lacks
        self.link: LinkSize | None = None  # takes no time; may change between steps
        self._is_free_at = 0.0
        self._messages: queue.Queue[tuple[float, Arrival, Any]] = queue.Queue()
        threading.Thread(target=self._deliver, daemon=True).start()

    def getBackendName(self) -> str:  # noqa: N802  # torch's name
        return BACKEND_NAME

    @override
    def allreduce(self, tensors: Any, opts: Any = None) -> dist.Work:
        tensors = [tensors] if isinstance(tensors, torch.Tensor) else tensors
        if self.link is None:
            return _over(tensors)
        num_bytes = sum(tensor.nbytes for tensor in tensors)
        bytes_per_second = self.link.gb_per_second * 1e9
        seconds = self.link.latency_us / 1e6 + num_bytes / bytes_per_second
        self._is_free_at = max(time.perf_counter(), self._is_free_at) + seconds
        arrival: Arrival = torch.futures.Future()
        self._messages.put((self._is_free_at, arrival, tensors))
        return _Message(arrival)

    # The constructor of DDP calls these two. All ranks have equal inputs, so the result is
    # the input of this rank.

    @override
    def broadcast(self, tensors: Any, opts: Any = None) -> dist.Work:
        return _over(tensors)

    @override
    def allgather(self, outputs: Any, inputs: Any, opts: Any = None) -> dist.Work:
        for gathered, own in zip(outputs, inputs, strict=True):
            for output in gathered:
                output.copy_(own)
        return _over(outputs)

    def _deliver(self) -> None:
        while True:
            arrives_at, arrival, tensors = self._messages.get()
            time.sleep(max(0.0, arrives_at - time.perf_counter()))
            arrival.set_result(tensors)


def make_group() -> LinkProcessGroup:
    """Make a group of all ranks; every rank must call this."""
    made: list[LinkProcessGroup] = []

    def create(store: Any, rank: int, size: int, timeout: timedelta) -> Any:
        made.append(LinkProcessGroup(rank, size))
        return made[-1]

    dist.Backend.register_backend(BACKEND_NAME, create, devices=["cpu"])
    dist.new_group(backend=BACKEND_NAME)
    return made[-1]


def _over(result: Any) -> _Message:
    arrival: Arrival = torch.futures.Future()
    arrival.set_result(result)
    return _Message(arrival)
