"""Tensors with gaps on gloo, which moves other memory than that of their elements."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
import torch.distributed as dist
import torch.multiprocessing

from syncverify.errors import EnvironmentNotSupportedError

OnRanks = Callable[[int, Callable[[int], Any]], list[Any]]


def own(rank: int, numel: int = 2) -> torch.Tensor:
    return torch.arange(float(numel)) + 100 * rank


def with_gaps(rank: int) -> torch.Tensor:
    """Return every second element of a memory that has -1 in the gaps."""
    memory = torch.full((4,), -1.0)
    memory[::2] = own(rank)
    return memory[::2]


def memory_of(part: torch.Tensor) -> list[float]:
    return torch.as_strided(part, (4,), (1,), 0).tolist()


def all_reduce(rank: int) -> list[float]:
    dist.all_reduce(part := with_gaps(rank))
    return memory_of(part)


def all_reduce_of_several(rank: int) -> list[float]:
    world: Any = dist.group.WORLD
    world.allreduce_coalesced([part := with_gaps(rank), own(rank)]).wait()
    return memory_of(part)


def broadcast(rank: int) -> list[float]:
    dist.broadcast(part := with_gaps(rank), 0)
    return memory_of(part)


def reduce_to_first(rank: int) -> list[float]:
    """Rank 1 is not compared: gloo uses its memory for parts of the sum."""
    dist.reduce(part := with_gaps(rank), 0)
    return memory_of(part) if rank == 0 else []


def scatter_columns(rank: int) -> list[float]:
    columns = list(torch.stack([own(0), own(0) + 10], 1).unbind(1))
    dist.scatter(part := with_gaps(1), columns if rank == 0 else None, 0)
    return memory_of(part)


def all_to_all_single(rank: int) -> list[float]:
    dist.all_to_all_single(part := with_gaps(0), own(rank))
    return memory_of(part)


def all_gather_columns(rank: int) -> list[float]:
    gathered = torch.zeros(2, 2)
    dist.all_gather(list(gathered.unbind(1)), with_gaps(rank))
    return gathered.flatten().tolist()


def gather_columns(rank: int) -> list[float]:
    gathered = torch.zeros(2, 2)
    outputs = list(gathered.unbind(1)) if rank == 0 else None
    dist.gather(with_gaps(rank), outputs, 0)
    return gathered.flatten().tolist()


def reduce_scatter_columns(rank: int) -> list[float]:
    part = torch.zeros(2)
    dist.reduce_scatter(part, list(torch.stack([own(rank)] * 2, 1).unbind(1)))
    return part.tolist()


# The memory of each rank, with the elements where a program looks for them at 0 and 2.
MOVED: dict[Callable[[int], list[float]], list[list[float]]] = {
    all_reduce: [[100.0, -2.0, 1.0, -1.0], [100.0, -2.0, 101.0, -1.0]],
    all_reduce_of_several: [[100.0, -1.0, 102.0, -1.0]] * 2,
    broadcast: [[0.0, -1.0, 1.0, -1.0], [0.0, -1.0, 101.0, -1.0]],
    reduce_to_first: [[100.0, -2.0, 1.0, -1.0], []],
    scatter_columns: [[0.0, 10.0, 101.0, -1.0], [10.0, 1.0, 101.0, -1.0]],
    all_to_all_single: [[0.0, 100.0, 1.0, -1.0], [1.0, 101.0, 1.0, -1.0]],
    all_gather_columns: [[0.0, 100.0, 1.0, 101.0]] * 2,
    gather_columns: [[0.0, 100.0, 1.0, 101.0], [0.0] * 4],
    reduce_scatter_columns: [[100.0, 102.0]] * 2,
}


@pytest.mark.parametrize("program", MOVED, ids=lambda each: each.__name__)
def test_simulated_gloo_moves_the_memory_of_gloo(
    on_ranks: OnRanks, program: Callable[[int], list[float]]
) -> None:
    assert on_ranks(2, program) == MOVED[program]


def _on_gloo(rank: int, path: str) -> None:
    store = dist.FileStore(path, 2)
    dist.init_process_group("gloo", store=store, rank=rank, world_size=2)
    for program, expected in MOVED.items():
        found = program(rank)
        assert found == expected[rank], (program.__name__, rank, found)
    dist.destroy_process_group()


@pytest.mark.long
def test_gloo_moves_this_memory(tmp_path: Path) -> None:
    torch.multiprocessing.spawn(_on_gloo, (str(tmp_path / "store"),), nprocs=2)


REFUSED = {
    "send": lambda part: dist.send(part, 1 - dist.get_rank()),
    "recv": lambda part: dist.recv(part, 1 - dist.get_rank()),
    "all_to_all_single": lambda part: dist.all_to_all_single(torch.zeros(2), part),
}


@pytest.mark.parametrize(
    ("name", "words"),
    [
        ("send", "input tensor has to be contiguous"),
        ("recv", "input tensor has to be contiguous"),
        ("all_to_all_single", "Tensors must be contiguous"),
    ],
)
def test_what_gloo_refuses_raises(on_ranks: OnRanks, name: str, words: str) -> None:
    with pytest.raises((RuntimeError, ValueError), match=words):
        on_ranks(2, lambda rank: REFUSED[name](with_gaps(rank)))


def test_memory_beyond_the_end_is_not_simulated(on_ranks: OnRanks) -> None:
    with pytest.raises(EnvironmentNotSupportedError, match="more memory than"):
        on_ranks(2, lambda _: dist.all_reduce(torch.ones(1).expand(4)))
