"""Ranks for tests: one process alone, or a few threads that reduce for real."""

import threading
from collections.abc import Callable, Iterator
from typing import Any

import pytest
import torch
import torch.distributed as dist
from torch.testing._internal.distributed.fake_pg import FakeStore
from torch.testing._internal.distributed.multi_threaded_pg import (
    ProcessLocalGroup,
    ReduceScatter,
    _install_threaded_pg,
    _uninstall_threaded_pg,
)

from tests.synchronizer.simulated_streams import SimulatedStream, SimulatedStreams

JOIN_SECONDS = 30.0


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
    """Torch forgets a group's name before it asks for it, when it destroys the group."""
    if not hasattr(group, "remembered_name"):
        group.remembered_name = group._world().pg_names[group]
    return group.remembered_name


def _work_on_copies(reduce_scatter: ReduceScatter, data: list[Any]) -> None:
    """Torch's own writes an output before it has read all inputs, which may share memory."""
    copies = [(output, [[part.clone() for part in parts[0]]]) for output, parts in data]
    _reduce_scatter_work(reduce_scatter, copies)


_reduce_scatter_work = ReduceScatter.work


class Ranks:
    """Runs a program on ranks that are threads of this process."""

    def __init__(self) -> None:
        self._errors: dict[int, BaseException] = {}

    def run(self, world_size: int, program: Callable[[int], Any]) -> list[Any]:
        """Return the result of the program on each rank, or raise its error."""
        results: list[Any] = [None] * world_size
        store = dist.HashStore()

        def run_rank(rank: int) -> None:
            dist.init_process_group(
                "threaded", rank=rank, world_size=world_size, store=store
            )
            try:
                results[rank] = program(rank)
            except BaseException as error:  # noqa: BLE001  # raised again by `run`
                self._errors[rank] = error
                ProcessLocalGroup.exception_handle(error)
            finally:
                dist.destroy_process_group()

        threads = [
            threading.Thread(target=run_rank, args=(rank,), daemon=True)
            for rank in range(world_size)
        ]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(JOIN_SECONDS)
        stuck = [rank for rank, thread in enumerate(threads) if thread.is_alive()]
        real = [e for e in self._errors.values() if not isinstance(e, SystemExit)]
        if real:
            raise real[0]
        assert not stuck, f"ranks {stuck} did not finish"
        return results


@pytest.fixture
def ranks(monkeypatch: pytest.MonkeyPatch) -> Iterator[Ranks]:
    """A runner for programs on several ranks."""
    monkeypatch.setattr(ProcessLocalGroup, "pg_name", property(_remembered_name))
    monkeypatch.setattr(ProcessLocalGroup, "shutdown", _remembered_name)
    monkeypatch.setattr(ReduceScatter, "work", _work_on_copies)
    torch._C._distributed_c10d._set_thread_isolation_mode(True)
    _install_threaded_pg()
    yield Ranks()
    ProcessLocalGroup.reset()
    _uninstall_threaded_pg()
    torch._C._distributed_c10d._set_thread_isolation_mode(False)
