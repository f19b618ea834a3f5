"""The private machinery of torch for ranks as threads, as we rely on it."""

import sys
import threading

import pytest
import torch.distributed as dist
from torch.distributed import distributed_c10d as c10d
from torch.testing._internal.distributed.multi_threaded_pg import ThreadLocalWorld

from syncverify.sim.machine import SimulatedMachine
from syncverify.sim.network.threaded_world import thread_local_world


def on_thread(program: object) -> object:
    results: list[object] = []
    thread = threading.Thread(target=lambda: results.append(program()))
    thread.start()
    thread.join()
    return results[0]


def test_each_thread_has_a_world_of_its_own() -> None:
    with thread_local_world():
        dist.init_process_group("fake", rank=0, world_size=3, store=dist.HashStore())
        assert dist.get_world_size() == 3
        assert on_thread(dist.is_initialized) is False
        dist.destroy_process_group()


def test_worlds_of_torch_2_11_end_as_others_do(monkeypatch: pytest.MonkeyPatch) -> None:
    """Their `destroy_process_group` empties a list of communicators that they lack."""
    monkeypatch.delattr(ThreadLocalWorld, "comms")
    ranks, _ = SimulatedMachine(2).run(lambda _: dist.destroy_process_group())
    assert [rank.error for rank in ranks] == [None, None]
    monkeypatch.undo()
    assert hasattr(ThreadLocalWorld, "comms")


def test_world_is_restored_after_an_error() -> None:
    before = c10d._world
    with pytest.raises(KeyError), thread_local_world():
        raise KeyError
    assert c10d._world is before


def test_default_process_group_is_not_hidden() -> None:
    dist.init_process_group("gloo", rank=0, world_size=1, store=dist.HashStore())
    try:
        with pytest.raises(RuntimeError) as caught, thread_local_world():
            pass
    finally:
        dist.destroy_process_group()
    assert str(caught.value) == (
        "expected no default process group in a process that simulates ranks; "
        "call torch.distributed.destroy_process_group() first"
    )


def test_a_run_leaves_no_hook_for_exceptions() -> None:
    """Thousands of runs made a chain that no exception could pass."""
    before = sys.excepthook
    SimulatedMachine(2).run(lambda rank: None)
    assert sys.excepthook is before
