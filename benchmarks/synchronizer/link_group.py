"""A simulation: a process group that sleeps for as long as a message would travel.

Nothing is sent and nothing is summed. A message takes `latency + bytes / bandwidth`,
messages travel one after the other, and meanwhile the cores are free, as they are while
a network card or a GPU works, and as they are not under gloo. Each rank has a link of
its own, and nobody waits for anybody else.
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

from benchmarks.synchronizer.sizes import LinkSize

BACKEND_NAME = "simulated_link"

Arrival = torch.futures.Future[Any]


class _Message(dist.Work):
    """A collective that is over once its future is."""

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
    """Passes `allreduce` over the simulated link, and all else at once.

    Attributes:
        link: How long messages take; None for not at all. May change between steps.
    """

    def __init__(self, rank: int, size: int) -> None:
        super().__init__(rank, size)  # type: ignore[call-arg]  # an overload torch's stub lacks
        self.link: LinkSize | None = None
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
        seconds = self.link.latency_us / 1e6 + num_bytes / (
            self.link.gb_per_second * 1e9
        )
        self._is_free_at = max(time.perf_counter(), self._is_free_at) + seconds
        arrival: Arrival = torch.futures.Future()
        self._messages.put((self._is_free_at, arrival, tensors))
        return _Message(arrival)

    # What DDP asks for when it is made; every rank has the same to say.

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
    """Make a group of all ranks; all of them take part."""
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
