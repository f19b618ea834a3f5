"""The GPU of a process of a torchrun job, with stand-ins for GPUs."""

from types import SimpleNamespace
from typing import Any

import pytest
import torch
import torch.distributed as dist

from syncverify.backends.rank_device import own_device
from syncverify.errors import EnvironmentNotSupportedError


class Machine:
    """The GPUs that a process sees, by their identities."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self._set = monkeypatch

    def shows(self, *gpus: str, local_rank: int) -> None:
        self._set.setenv("LOCAL_RANK", str(local_rank))
        self._set.setattr(torch.cuda, "device_count", lambda: len(gpus))
        self._set.setattr(
            torch.cuda,
            "get_device_properties",
            lambda index: SimpleNamespace(uuid=gpus[index]),
        )


@pytest.fixture
def machine(monkeypatch: pytest.MonkeyPatch) -> Machine:
    return Machine(monkeypatch)


def store_with(*gpus: str) -> dist.Store:
    """Return a store in which other ranks, from 1 on, have chosen GPUs."""
    store = dist.HashStore()
    for rank, gpu in enumerate(gpus, start=1):
        store.set(f"gpu/{rank}", gpu)
    return store


@pytest.mark.parametrize(
    ("backend", "shown", "local_rank", "device"),
    [
        ("nccl", ("GPU-a", "GPU-b"), 1, torch.device("cuda", 1)),
        ("nccl", ("GPU-b",), 1, torch.device("cuda", 0)),
        ("gloo", (), 3, torch.device("cpu")),
    ],
)
def test_a_process_takes_the_gpu_of_its_local_rank_or_its_only_one(
    machine: Machine,
    backend: Any,
    shown: tuple[str, ...],
    local_rank: int,
    device: torch.device,
) -> None:
    machine.shows(*shown, local_rank=local_rank)
    store = store_with("GPU-a")
    assert own_device(backend, store, rank=0, world_size=2) == device


def test_two_processes_with_one_gpu_are_refused(machine: Machine) -> None:
    machine.shows("GPU-a", local_rank=1)
    with pytest.raises(EnvironmentNotSupportedError) as raised:
        own_device("nccl2", store_with("GPU-b", "GPU-a"), rank=0, world_size=3)
    assert str(raised.value) == (
        "the nccl2 backend needs one GPU per process: ranks [0, 2] all have GPU GPU-a; "
        "lower --nproc-per-node, or show each process another GPU by CUDA_VISIBLE_DEVICES"
    )


def test_a_process_beyond_several_gpus_has_none(machine: Machine) -> None:
    machine.shows("GPU-a", "GPU-b", local_rank=2)
    with pytest.raises(EnvironmentNotSupportedError) as raised:
        own_device("nccl", dist.HashStore(), rank=2, world_size=3)
    assert str(raised.value) == (
        "the nccl backend needs one GPU per process: local rank 2 of this machine has none "
        "(it has 2); lower --nproc-per-node"
    )
