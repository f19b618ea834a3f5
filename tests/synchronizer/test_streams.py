"""Stream edges, seen on a device module that records what is asked of it."""

from collections.abc import Iterator
from contextlib import contextmanager
from types import SimpleNamespace
from typing import Any

import pytest
import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.tensor import DTensor, Replicate
from torch.testing._internal.distributed.fake_pg import FakeStore

from synchronizer import GradientSynchronizer, ReductionFailedError


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

    def all_reduce(self, tensor: torch.Tensor, **_: Any) -> SimpleNamespace:
        self.log.append(f"all_reduce on {self._current}")
        return SimpleNamespace(
            wait=lambda: self.log.append(f"work.wait on {self._current}")
        )

    def taken(self) -> list[str]:
        log, self.log[:] = list(self.log), []
        return log


class SimulatedStream:
    """A new object each time it is asked for, and equal by name, as in torch.cuda."""

    def __init__(self, name: str, log: list[str]) -> None:
        self.name = name
        self._log = log

    def __eq__(self, other: object) -> bool:
        return isinstance(other, SimulatedStream) and other.name == self.name

    def __hash__(self) -> int:
        return hash(self.name)

    def wait_stream(self, stream: "SimulatedStream") -> None:
        self._log.append(f"{self.name} waits for {stream.name}")


@pytest.fixture
def streams(monkeypatch: pytest.MonkeyPatch) -> Iterator[SimulatedStreams]:
    simulated = SimulatedStreams()
    dist.init_process_group("fake", rank=0, world_size=2, store=FakeStore())
    monkeypatch.setattr(torch, "get_device_module", lambda _: simulated.module())
    monkeypatch.setattr(dist, "all_reduce", simulated.all_reduce)
    yield simulated
    dist.destroy_process_group()


def parameters(count: int) -> list[nn.Parameter]:
    mesh = init_device_mesh("cpu", (2,))
    return [
        nn.Parameter(
            DTensor.from_local(torch.zeros(3), mesh, [Replicate()], run_check=False)
        )
        for _ in range(count)
    ]


def accumulate(parameter: nn.Parameter) -> None:
    parameter.to_local().sum().backward()


def test_the_side_stream_waits_once_for_every_stream_that_wrote(streams) -> None:
    a, b, c = parameters(3)
    with GradientSynchronizer([[a, b, c]], 1, 2) as synchronizer:
        for each, stream in ((a, "x"), (b, "y"), (c, "main"), (a, "y"), (b, "x")):
            with streams.on(stream):
                accumulate(each)
        assert streams.taken() == []
        accumulate(c)
        assert streams.taken() == [
            "side waits for main",
            "side waits for x",
            "side waits for y",
            "all_reduce on side",
        ]
        synchronizer.wait()


def test_writers_of_an_earlier_step_are_forgotten(streams) -> None:
    (a,) = parameters(1)
    with GradientSynchronizer([[a]], 1, 1) as synchronizer:
        with streams.on("x"):
            accumulate(a)
        synchronizer.wait()
        with streams.on("z"):
            synchronizer.zero_grad()
        streams.taken()
        accumulate(a)
        edges = ["side waits for z", "side waits for main", "all_reduce on side"]
        assert streams.taken() == edges
        synchronizer.wait()


def test_wait_orders_the_stream_it_is_called_on(streams) -> None:
    (a,) = parameters(1)
    with GradientSynchronizer([[a]], 1, 1) as synchronizer:
        accumulate(a)
        streams.taken()
        with streams.on("optimizer"):
            synchronizer.wait()
        assert streams.taken() == ["work.wait on side", "optimizer waits for side"]
        synchronizer.wait()
        assert streams.taken() == ["main waits for side"]


def test_a_product_is_ordered_before_whatever_comes_after_the_side_stream(
    streams,
) -> None:
    (a,) = parameters(1)
    with GradientSynchronizer([[a]], 1, 1) as synchronizer:
        accumulate(a)
        streams.taken()
        with streams.on("optimizer"):
            synchronizer.wait(scale=2)
        assert streams.taken() == [
            "work.wait on side",
            "optimizer waits for side",
            "side waits for optimizer",
            "optimizer waits for side",
        ]
        synchronizer.scale_grads(3)
        assert streams.taken() == ["main waits for side", "side waits for main"]


def test_a_bucket_is_multiplied_while_the_next_one_is_being_reduced(streams) -> None:
    a, b = parameters(2)
    with GradientSynchronizer([[a], [b]], 1, 1) as synchronizer:
        accumulate(a)
        accumulate(b)
        streams.taken()
        synchronizer.wait(scale=2)
        product = ["main waits for side", "side waits for main"]
        assert streams.taken() == [
            "work.wait on side",
            *product,
            "work.wait on side",
            *product,
            "main waits for side",
        ]


def test_zeros_are_written_after_the_reduction_on_any_stream(streams) -> None:
    (a,) = parameters(1)
    with GradientSynchronizer([[a]], 1, 1) as synchronizer:
        accumulate(a)
        synchronizer.wait()
        streams.taken()
        with streams.on("z"):
            synchronizer.zero_grad()
        assert streams.taken() == ["z waits for side"]


def test_memory_returns_to_its_stream_after_everybody_who_used_it(streams) -> None:
    (a,) = parameters(1)
    synchronizer = GradientSynchronizer([[a]], 1, 1)
    with streams.on("allocation"):
        synchronizer.bind()
    with streams.on("x"):
        accumulate(a)
    streams.taken()
    synchronizer.unbind()
    assert streams.taken() == [
        "work.wait on side",
        "allocation waits for side",
        "allocation waits for allocation",
        "allocation waits for x",
        "allocation waits for main",
    ]


def test_a_failing_reduction_is_reported_and_unbind_still_releases_all(
    streams, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail() -> None:
        raise RuntimeError("connection closed by peer")

    monkeypatch.setattr(dist, "all_reduce", lambda _, **__: SimpleNamespace(wait=fail))
    a, b = parameters(2)
    synchronizer = GradientSynchronizer([[a], [b]], 1, 1)
    synchronizer.bind()
    accumulate(b)
    accumulate(a)
    with pytest.raises(ReductionFailedError) as caught:
        synchronizer.wait()
    assert str(caught.value).splitlines() == [
        "the all-reduce of bucket 0 failed",
        "  expected: every rank to take part, and none to leave",
        "  got:      RuntimeError: connection closed by peer",
        "  where:    rank 0 of 2, bucket 0",
        "  hint: call unbind() on every rank, and look for a rank that failed earlier",
    ]
    with pytest.raises(ReductionFailedError, match="bucket 1"):
        synchronizer.unbind()
    assert (a.grad, b.grad) == (None, None)
    accumulate(a)
    synchronizer.unbind()
