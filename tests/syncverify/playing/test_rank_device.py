"""The GPU of a process of a torchrun job, with stand-ins for GPUs."""

from collections.abc import Callable
from types import SimpleNamespace

import pytest
import torch
import torch.distributed as dist

from syncverify.errors import EnvironmentNotSupportedError
from syncverify.playing.roll_call import own_device


@pytest.fixture
def shows(monkeypatch: pytest.MonkeyPatch) -> Callable[..., None]:
    """Return a function that sets the GPUs that a process sees, by their identities."""

    def gpus_of(local_rank: int, *gpus: str) -> None:
        by_index = [SimpleNamespace(uuid=gpu) for gpu in gpus]
        monkeypatch.setenv("LOCAL_RANK", str(local_rank))
        monkeypatch.setattr(torch.cuda, "device_count", lambda: len(gpus))
        monkeypatch.setattr(torch.cuda, "get_device_properties", by_index.__getitem__)

    return gpus_of


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
    shows, backend, shown, local_rank, device
) -> None:
    shows(local_rank, *shown)
    store = store_with("GPU-a")
    assert own_device(backend, store, rank=0, world_size=2) == device


def test_two_processes_with_one_gpu_are_refused(shows) -> None:
    shows(1, "GPU-a")
    with pytest.raises(EnvironmentNotSupportedError) as raised:
        own_device("nccl2", store_with("GPU-b", "GPU-a"), rank=0, world_size=3)
    assert str(raised.value) == (
        "the nccl2 backend needs one GPU per process: ranks [0, 2] all have GPU GPU-a; "
        "lower --nproc-per-node, or show each process another GPU by CUDA_VISIBLE_DEVICES"
    )


def test_a_process_beyond_several_gpus_has_none(shows) -> None:
    shows(2, "GPU-a", "GPU-b")
    with pytest.raises(EnvironmentNotSupportedError) as raised:
        own_device("nccl", dist.HashStore(), rank=2, world_size=3)
    assert str(raised.value) == (
        "the nccl backend needs one GPU per process: local rank 2 of this machine has none "
        "(it has 2); lower --nproc-per-node"
    )
