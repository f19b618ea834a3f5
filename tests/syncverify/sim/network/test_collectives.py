"""Every supported collective through torch's public functions, beside the plain formula."""

from collections.abc import Callable
from typing import Any

import pytest
import torch
import torch.distributed as dist

OnRanks = Callable[[int, Callable[[int], Any]], list[Any]]


def own(rank: int, numel: int = 3) -> torch.Tensor:
    """A tensor that no other rank has, entries apart from each other."""
    return torch.arange(numel, dtype=torch.float32) + 10.0**rank


def stacked(size: int, numel: int = 3) -> torch.Tensor:
    return torch.stack([own(rank, numel) for rank in range(size)])


# torch 2.13 renamed some functions; the old names are the ones in use.
pytestmark = pytest.mark.filterwarnings("ignore:.*deprecated:FutureWarning")


def same(results: list[torch.Tensor], expected: list[torch.Tensor]) -> bool:
    return all(map(torch.equal, results, expected)) and len(results) == len(expected)


REDUCTIONS = {
    "SUM": (dist.ReduceOp.SUM, lambda s: s.sum(0)),
    "AVG": (dist.ReduceOp.AVG, lambda s: s.sum(0) / len(s)),
    "MIN": (dist.ReduceOp.MIN, lambda s: s.min(0).values),
    "MAX": (dist.ReduceOp.MAX, lambda s: s.max(0).values),
    "PRODUCT": (dist.ReduceOp.PRODUCT, lambda s: s.prod(0)),
}


@pytest.mark.parametrize(("op", "formula"), REDUCTIONS.values(), ids=REDUCTIONS.keys())
def test_all_reduce(
    on_ranks: OnRanks, op: dist.ReduceOp, formula: Callable[..., Any]
) -> None:
    def program(rank: int) -> torch.Tensor:
        tensor = own(rank)
        dist.all_reduce(tensor, op)
        return tensor

    assert same(on_ranks(3, program), [formula(stacked(3))] * 3)


@pytest.mark.parametrize(
    ("op", "expected"),
    [(dist.ReduceOp.BAND, 4), (dist.ReduceOp.BOR, 7), (dist.ReduceOp.BXOR, 7)],
    ids=["BAND", "BOR", "BXOR"],
)
def test_all_reduce_of_bits(
    on_ranks: OnRanks, op: dist.ReduceOp, expected: int
) -> None:
    def program(rank: int) -> int:
        tensor = torch.tensor([0b100, 0b101, 0b110][rank])
        dist.all_reduce(tensor, op)
        return int(tensor)

    assert on_ranks(3, program) == [expected] * 3


def test_all_reduce_of_part_of_a_buffer_leaves_the_rest(on_ranks: OnRanks) -> None:
    def program(rank: int) -> torch.Tensor:
        buffer = torch.ones(4) * (rank + 1)
        dist.all_reduce(buffer[1:3])
        return buffer

    first, second = on_ranks(2, program)
    assert first.tolist() == [1, 3, 3, 1]
    assert second.tolist() == [2, 3, 3, 2]


def test_all_reduce_of_nothing_and_of_a_scalar(on_ranks: OnRanks) -> None:
    def program(rank: int) -> tuple[list[float], float]:
        empty, scalar = torch.zeros(0), torch.tensor(rank + 1.0)
        dist.all_reduce(empty)
        dist.all_reduce(scalar)
        return empty.tolist(), scalar.item()

    assert on_ranks(3, program) == [([], 6.0)] * 3


def all_reduce_coalesced(rank: int, _: int) -> torch.Tensor:
    tensors = [own(rank, 2), own(rank, 5)]
    dist.all_reduce_coalesced(tensors)
    return torch.cat(tensors)


def broadcast(rank: int, size: int) -> torch.Tensor:
    tensor = own(rank)
    dist.broadcast(tensor, src=size - 1)
    return tensor


def reduce(rank: int, size: int) -> torch.Tensor:
    tensor = own(rank)
    dist.reduce(tensor, dst=size - 1, op=dist.ReduceOp.MAX)
    return tensor


def all_gather(rank: int, size: int) -> torch.Tensor:
    outputs = [torch.zeros(3) for _ in range(size)]
    dist.all_gather(outputs, own(rank))
    return torch.stack(outputs)


def all_gather_into_tensor(rank: int, size: int) -> torch.Tensor:
    output = torch.zeros(size * 4)
    dist.all_gather_into_tensor(output, own(rank, 4).view(2, 2))
    return output


def reduce_scatter(rank: int, size: int) -> torch.Tensor:
    output = torch.zeros(3)
    inputs = [own(rank) * (peer + 1) for peer in range(size)]
    dist.reduce_scatter(output, inputs, dist.ReduceOp.AVG)
    return output


def reduce_scatter_tensor(rank: int, size: int) -> torch.Tensor:
    output = torch.zeros(2)
    dist.reduce_scatter_tensor(output, own(rank, 2 * size), dist.ReduceOp.MAX)
    return output


def scatter(rank: int, size: int) -> torch.Tensor:
    output = torch.zeros(3)
    parts = [own(peer) for peer in range(size)] if rank == 0 else None
    dist.scatter(output, parts, src=0)
    return output


def gather(rank: int, size: int) -> torch.Tensor:
    outputs = [torch.zeros(3) for _ in range(size)] if rank == size - 1 else []
    dist.gather(own(rank), outputs or None, dst=size - 1)
    return torch.cat([torch.zeros(0), *outputs])


# The result of each rank, by the number of ranks.
EXPECTED: dict[Callable[[int, int], torch.Tensor], Callable[[int], Any]] = {
    all_reduce_coalesced: lambda size: (
        [torch.cat([stacked(size, 2).sum(0), stacked(size, 5).sum(0)])] * size),
    broadcast: lambda size: [own(size - 1)] * size,
    reduce: lambda size: [*stacked(size)[:-1], stacked(size).max(0).values],
    all_gather: lambda size: [stacked(size)] * size,
    all_gather_into_tensor: lambda size: [stacked(size, 4).reshape(-1)] * size,
    reduce_scatter: lambda size: [
        (stacked(size) * (rank + 1)).sum(0) / size for rank in range(size)],
    reduce_scatter_tensor: lambda size: (stacked(size, 2 * size).max(0).values.chunk(size)),
    scatter: stacked,
    gather: lambda size: [torch.zeros(0)] * (size - 1) + [stacked(size).reshape(-1)],
}  # fmt: skip


@pytest.mark.parametrize("size", [1, 3])
@pytest.mark.parametrize("collective", EXPECTED, ids=lambda each: each.__name__)
def test_a_collective_gives_the_values_of_its_formula(
    on_ranks: OnRanks, collective: Callable[[int, int], torch.Tensor], size: int
) -> None:
    results = on_ranks(size, lambda rank: collective(rank, size))
    assert same(results, [*EXPECTED[collective](size)])


def test_barrier_holds_until_all_arrived(on_ranks: OnRanks) -> None:
    arrived: list[int] = []

    def program(rank: int) -> int:
        arrived.append(rank)
        dist.barrier()
        return len(arrived)

    assert on_ranks(3, program) == [3] * 3


def test_subgroups_of_new_group(on_ranks: OnRanks) -> None:
    """Pairs that do not lie side by side; roots are named by their global rank."""

    def program(rank: int) -> tuple[float, list[int], float]:
        pairs = [dist.new_group(ranks) for ranks in ([0, 2], [1, 3])]
        mine = pairs[rank % 2]
        total = own(rank, 1)
        dist.all_reduce(total, group=mine)
        root = torch.tensor([float(rank)])
        dist.broadcast(root, src=2 + rank % 2, group=mine)
        return total.item(), dist.get_process_group_ranks(mine), root.item()

    assert on_ranks(4, program) == [
        (101.0, [0, 2], 2.0),
        (1010.0, [1, 3], 3.0),
        (101.0, [0, 2], 2.0),
        (1010.0, [1, 3], 3.0),
    ]


def test_groups_do_not_wait_for_each_other(on_ranks: OnRanks) -> None:
    """Rank 0 joins the default group only after the other group has finished."""
    order: list[int] = []

    def program(rank: int) -> None:
        pair = dist.new_group([1, 2])
        if rank == 0:
            dist.recv(torch.zeros(1), src=1)
        else:
            dist.barrier(group=pair)
        order.append(rank)
        if rank == 1:
            dist.send(torch.ones(1), dst=0)
        dist.barrier()

    on_ranks(3, program)
    assert order.index(1) < order.index(0)


def test_memory_is_moved_as_it_lies(on_ranks: OnRanks) -> None:
    """NCCL knows no strides: a transposed input arrives in the order of its memory."""

    def program(rank: int) -> list[torch.Tensor]:
        gathered = torch.zeros(2, 2, 3)
        transposed = own(rank, 6).view(3, 2).t()
        dist.all_gather_single(gathered, transposed)
        summed = transposed.clone() if rank else transposed.contiguous()
        dist.all_reduce(summed)
        return [gathered, summed]

    first, second = on_ranks(2, program)
    lies = [own(rank, 6).view(2, 3) for rank in range(2)]
    assert same(first[:1] + second[:1], [torch.stack(lies)] * 2)
    rows = own(0, 6).view(3, 2).t().reshape(-1) + own(1, 6)
    assert torch.equal(first[1], rows.view(2, 3))
    assert torch.equal(second[1], rows.view(3, 2).t())


def test_scaled_sum_multiplies_each_rank_by_its_own_factor(on_ranks: OnRanks) -> None:
    def program(rank: int) -> list[list[float]]:
        tensor, output = torch.tensor([3.0, 5.0]), torch.zeros(1)
        factor = dist._make_nccl_premul_sum(torch.tensor([0.5]))
        dist.reduce_scatter_tensor(output, tensor, factor)
        dist.all_reduce(tensor, dist._make_nccl_premul_sum(2.0 + rank))
        return [tensor.tolist(), output.tolist()]

    expected = [[[15.0, 25.0], [3.0]], [[15.0, 25.0], [5.0]]]
    assert on_ranks(2, program) == expected


def test_whole_numbers_are_reduced_as_by_nccl(on_ranks: OnRanks) -> None:
    """An average drops the remainder exactly; a quotient of floats would lose the last bits."""
    large = 2**53 + 1

    def program(rank: int) -> list[list[int]]:
        averaged = torch.tensor([large, 0 if rank else 5, 0 if rank else -5])
        dist.all_reduce(averaged, dist.ReduceOp.AVG)
        overflowing = torch.tensor([100], dtype=torch.int8)
        dist.all_reduce(overflowing)
        average = torch.tensor([100], dtype=torch.int8)
        dist.all_reduce(average, dist.ReduceOp.AVG)
        return [averaged.tolist(), overflowing.tolist(), average.tolist()]

    assert on_ranks(2, program) == [[[large, 2, -2], [-56], [-28]]] * 2
