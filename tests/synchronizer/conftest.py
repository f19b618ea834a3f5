"""Ranks for tests: one process alone, or a few threads that reduce for real."""

from collections.abc import Iterator
from types import SimpleNamespace
from typing import Any, NamedTuple

import pytest
import torch
import torch.distributed as dist
from torch.testing._internal.distributed.fake_pg import FakeStore
from torch.testing._internal.distributed.multi_threaded_pg import (
    ProcessLocalGroup,
    ReduceScatter,
)

from tests.synchronizer.simulated_streams import SimulatedStream, SimulatedStreams
from tests.thread_ranks import groups_by_thread, on_ranks


@pytest.fixture
def one_rank() -> Iterator[None]:
    """A default process group of this process alone."""
    dist.init_process_group("gloo", rank=0, world_size=1, store=dist.HashStore())
    yield
    dist.destroy_process_group()


@pytest.fixture
def two_ranks() -> Iterator[None]:
    """The first rank of two; a collective leaves its input as it is."""
    dist.init_process_group("fake", rank=0, world_size=2, store=FakeStore())
    yield
    dist.destroy_process_group()


@pytest.fixture
def streams(monkeypatch: pytest.MonkeyPatch) -> Iterator[SimulatedStreams]:
    simulated = SimulatedStreams()
    dist.init_process_group("fake", rank=0, world_size=2, store=FakeStore())
    monkeypatch.setattr(torch, "get_device_module", lambda _: simulated.module())
    monkeypatch.setattr(torch, "Stream", SimulatedStream)
    monkeypatch.setattr(torch.Tensor, "record_stream", simulated.record_stream)
    monkeypatch.setattr(dist, "all_reduce", simulated.all_reduce)
    yield simulated
    dist.destroy_process_group()


def _remembered_name(group: ProcessLocalGroup) -> str:
    """Torch, destroying a group, forgets the name and asks for the name later."""
    if not hasattr(group, "remembered_name"):
        group.remembered_name = group._world().pg_names[group]
    return group.remembered_name


def _work_on_copies(reduce_scatter: ReduceScatter, data: list[Any]) -> None:
    """Torch's own writes an output before it has read all inputs, which may share memory."""
    copies = [(output, [[part.clone() for part in parts[0]]]) for output, parts in data]
    _reduce_scatter_work(reduce_scatter, copies)


_reduce_scatter_work = ReduceScatter.work


@pytest.fixture
def ranks(monkeypatch: pytest.MonkeyPatch) -> Iterator[SimpleNamespace]:
    """`run` plays a program on a number of ranks that reduce for real."""
    monkeypatch.setattr(ProcessLocalGroup, "pg_name", property(_remembered_name))
    monkeypatch.setattr(ProcessLocalGroup, "shutdown", _remembered_name)
    monkeypatch.setattr(ReduceScatter, "work", _work_on_copies)
    with groups_by_thread():
        yield SimpleNamespace(run=on_ranks)


class Launch(NamedTuple):
    """An all-reduce: its rank, and the size and address of its memory."""

    rank: int
    numel: int
    address: int


@pytest.fixture
def launches(monkeypatch: pytest.MonkeyPatch) -> list[Launch]:
    """The all-reduces of all ranks so far."""
    seen: list[Launch] = []
    all_reduce = dist.all_reduce

    def observed(tensor: torch.Tensor, **arguments: Any) -> Any:
        address = tensor.untyped_storage().data_ptr()
        seen.append(Launch(dist.get_rank(), tensor.numel(), address))
        return all_reduce(tensor, **arguments)

    monkeypatch.setattr(dist, "all_reduce", observed)
    return seen
