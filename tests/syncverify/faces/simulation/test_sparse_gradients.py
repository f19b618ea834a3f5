"""Sparse gradients in free programs: exchanged by hand they are judged, and else refused."""

from collections.abc import Callable

import pytest
import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel

from syncverify import simulate

# Of rows [0, 1, 1] of rank 0 and [1, 4, 5, 5] of rank 1.
_SUMS = [1.0, 3.0, 0.0, 0.0, 1.0, 2.0]


def _table(rank: int) -> nn.Embedding:
    """Return a table with the sparse gradient of the rows that the rank looked up."""
    table = nn.Embedding(6, 1, sparse=True)
    table(torch.tensor([1, 4, 5, 5] if rank else [0, 1, 1])).sum().backward()
    return table


def _gathered(rank: int, gradient: torch.Tensor) -> torch.Tensor:
    """Gather rows and values, of which the ranks have different numbers."""
    counts = [torch.zeros(1, dtype=torch.int64) for _ in range(2)]
    own = gradient._indices()[0]
    dist.all_gather(counts, torch.tensor([len(own)]))
    most = int(max(counts))
    rows = [torch.zeros(most, dtype=torch.int64) for _ in counts]
    values = [torch.zeros(most, 1) for _ in counts]
    missing = most - len(own)
    dist.all_gather(rows, nn.functional.pad(own, (0, missing)))
    padded = nn.functional.pad(gradient._values(), (0, 0, 0, missing))
    dist.all_gather(values, padded)
    pairs = [*zip(rows, values, map(int, counts), strict=True)]
    all_rows = torch.cat([each[:count] for each, _, count in pairs])
    all_values = torch.cat([each[:count] for _, each, count in pairs])
    return torch.sparse_coo_tensor(
        all_rows[None], all_values, gradient.shape, check_invariants=True
    )


def _by_rows(rank: int) -> list[float]:
    gradient = _table(rank).weight.grad
    assert gradient is not None
    return _gathered(rank, gradient).to_dense().flatten().tolist()


def test_sparse_gradients_are_exchanged_by_hand() -> None:
    simulation = simulate(_by_rows, 2, device="cpu")
    assert simulation.is_right, str(simulation)
    assert [*simulation.results] == [_SUMS, _SUMS]


def _directly(rank: int) -> None:
    gradient = _table(rank).weight.grad
    dist.all_reduce(gradient)


def _by_ddp(rank: int) -> None:
    wrapped = DistributedDataParallel(nn.Embedding(6, 1, sparse=True))
    wrapped(torch.tensor([rank, 5, 5])).sum().backward()


@pytest.mark.parametrize("program", [_directly, _by_ddp])
def test_collectives_of_sparse_tensors_are_refused_in_one_line(
    program: Callable[[int], None],
) -> None:
    (line,) = str(simulate(program, 2, device="cpu")).splitlines()
    assert line.startswith("NOT SIMULATED")
    assert "does not simulate collectives of sparse tensors, used at" in line
