"""Every supported collective through torch's public functions, beside the plain formula."""

from collections.abc import Callable
from typing import Any

import pytest
import torch
import torch.distributed as dist
import torch.distributed._functional_collectives as funcol
from torch.distributed.device_mesh import init_device_mesh

OnRanks = Callable[[int, Callable[[int], Any]], list[Any]]
SIZES = pytest.mark.parametrize("size", [1, 2, 3, 4])


def own(rank: int, numel: int = 3) -> torch.Tensor:
    """A tensor that no other rank has, entries apart from each other."""
    return torch.arange(numel, dtype=torch.float32) + 10.0**rank


def stacked(size: int, numel: int = 3) -> torch.Tensor:
    return torch.stack([own(rank, numel) for rank in range(size)])


REDUCTIONS = {
    "SUM": (dist.ReduceOp.SUM, lambda s: s.sum(0)),
    "AVG": (dist.ReduceOp.AVG, lambda s: s.sum(0) / len(s)),
    "MIN": (dist.ReduceOp.MIN, lambda s: s.min(0).values),
    "MAX": (dist.ReduceOp.MAX, lambda s: s.max(0).values),
    "PRODUCT": (dist.ReduceOp.PRODUCT, lambda s: s.prod(0)),
}
OPERATIONS = pytest.mark.parametrize(
    ("op", "formula"), REDUCTIONS.values(), ids=REDUCTIONS.keys()
)


# torch 2.13 renamed some functions; the old names are the ones in use.
OLD_NAMES = pytest.mark.filterwarnings("ignore:.*is deprecated:FutureWarning")


def same(results: list[torch.Tensor], expected: list[torch.Tensor]) -> bool:
    return all(map(torch.equal, results, expected)) and len(results) == len(expected)


@SIZES
@OPERATIONS
def test_all_reduce(
    on_ranks: OnRanks, size: int, op: dist.ReduceOp, formula: Callable[..., Any]
) -> None:
    def program(rank: int) -> torch.Tensor:
        tensor = own(rank)
        dist.all_reduce(tensor, op)
        return tensor

    assert same(on_ranks(size, program), [formula(stacked(size))] * size)


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


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_all_reduce_keeps_the_dtype(on_ranks: OnRanks, dtype: torch.dtype) -> None:
    def program(rank: int) -> torch.Tensor:
        tensor = torch.full((2,), 100 + rank, dtype=dtype)
        dist.all_reduce(tensor)
        return tensor

    assert same(on_ranks(2, program), [torch.full((2,), 201, dtype=dtype)] * 2)


def test_all_reduce_of_nothing_and_of_a_scalar(on_ranks: OnRanks) -> None:
    def program(rank: int) -> tuple[list[float], float]:
        empty, scalar = torch.zeros(0), torch.tensor(rank + 1.0)
        dist.all_reduce(empty)
        dist.all_reduce(scalar)
        return empty.tolist(), scalar.item()

    assert on_ranks(3, program) == [([], 6.0)] * 3


def test_all_reduce_of_detached_memory_writes_the_leaf(on_ranks: OnRanks) -> None:
    def program(rank: int) -> float:
        weight = torch.ones(1, requires_grad=True)
        dist.all_reduce(weight.detach())
        return weight.item()

    assert on_ranks(2, program) == [2.0, 2.0]


def test_all_reduce_coalesced(on_ranks: OnRanks) -> None:
    def program(rank: int) -> list[torch.Tensor]:
        tensors = [own(rank, 2), own(rank, 5)]
        with pytest.warns(FutureWarning, match="all_reduce_coalesced"):
            dist.all_reduce_coalesced(tensors)
        return tensors

    for result in on_ranks(3, program):
        assert same(result, [stacked(3, 2).sum(0), stacked(3, 5).sum(0)])


@SIZES
def test_broadcast(on_ranks: OnRanks, size: int) -> None:
    def program(rank: int) -> torch.Tensor:
        tensor = own(rank)
        dist.broadcast(tensor, src=size - 1)
        return tensor

    assert same(on_ranks(size, program), [own(size - 1)] * size)


@SIZES
@OPERATIONS
def test_reduce(
    on_ranks: OnRanks, size: int, op: dist.ReduceOp, formula: Callable[..., Any]
) -> None:
    def program(rank: int) -> torch.Tensor:
        tensor = own(rank)
        dist.reduce(tensor, dst=size - 1, op=op)
        return tensor

    expected = [own(rank) for rank in range(size - 1)] + [formula(stacked(size))]
    assert same(on_ranks(size, program), expected)


@SIZES
def test_all_gather(on_ranks: OnRanks, size: int) -> None:
    def program(rank: int) -> torch.Tensor:
        outputs = [torch.zeros(3) for _ in range(size)]
        dist.all_gather(outputs, own(rank))
        return torch.stack(outputs)

    assert same(on_ranks(size, program), [stacked(size)] * size)


@OLD_NAMES
@SIZES
def test_all_gather_into_tensor(on_ranks: OnRanks, size: int) -> None:
    def program(rank: int) -> torch.Tensor:
        output = torch.zeros(size * 4)
        dist.all_gather_into_tensor(output, own(rank, 4).view(2, 2))
        return output

    assert same(on_ranks(size, program), [stacked(size, 4).reshape(-1)] * size)


@SIZES
def test_all_gather_object(on_ranks: OnRanks, size: int) -> None:
    def program(rank: int) -> list[object]:
        gathered: list[object] = [None] * size
        dist.all_gather_object(gathered, {"rank": rank, "text": "x" * rank})
        return gathered

    expected = [{"rank": rank, "text": "x" * rank} for rank in range(size)]
    assert on_ranks(size, program) == [expected] * size


@SIZES
@OPERATIONS
def test_reduce_scatter(
    on_ranks: OnRanks, size: int, op: dist.ReduceOp, formula: Callable[..., Any]
) -> None:
    def program(rank: int) -> torch.Tensor:
        output = torch.zeros(3)
        inputs = [own(rank) * (peer + 1) for peer in range(size)]
        dist.reduce_scatter(output, inputs, op)
        return output

    expected = [formula(stacked(size) * (rank + 1)) for rank in range(size)]
    assert same(on_ranks(size, program), expected)


@OLD_NAMES
@SIZES
@OPERATIONS
def test_reduce_scatter_tensor(
    on_ranks: OnRanks, size: int, op: dist.ReduceOp, formula: Callable[..., Any]
) -> None:
    def program(rank: int) -> torch.Tensor:
        output = torch.zeros(2)
        dist.reduce_scatter_tensor(output, own(rank, 2 * size), op)
        return output

    whole = formula(stacked(size, 2 * size))
    assert same(on_ranks(size, program), list(whole.chunk(size)))


@SIZES
def test_scatter(on_ranks: OnRanks, size: int) -> None:
    def program(rank: int) -> torch.Tensor:
        output = torch.zeros(3)
        parts = [own(peer) for peer in range(size)] if rank == 0 else None
        dist.scatter(output, parts, src=0)
        return output

    assert same(on_ranks(size, program), list(stacked(size)))


@SIZES
def test_gather(on_ranks: OnRanks, size: int) -> None:
    def program(rank: int) -> torch.Tensor | None:
        is_root = rank == size - 1
        outputs = [torch.zeros(3) for _ in range(size)] if is_root else None
        dist.gather(own(rank), outputs, dst=size - 1)
        return torch.stack(outputs) if outputs else None

    *others, root = on_ranks(size, program)
    assert others == [None] * (size - 1)
    assert torch.equal(root, stacked(size))


@SIZES
def test_barrier_holds_until_all_arrived(on_ranks: OnRanks, size: int) -> None:
    arrived: list[int] = []

    def program(rank: int) -> int:
        arrived.append(rank)
        dist.barrier()
        return len(arrived)

    assert on_ranks(size, program) == [size] * size


@OLD_NAMES
@SIZES
def test_functional_collectives_give_the_values_of_torch(
    on_ranks: OnRanks, size: int
) -> None:
    def program(rank: int) -> list[torch.Tensor]:
        group = dist.group.WORLD
        return [
            funcol.all_reduce(own(rank), "sum", group).clone(),
            funcol.all_gather_tensor(own(rank), 0, group).clone(),
            funcol.reduce_scatter_tensor(own(rank, size), "sum", 0, group).clone(),
            funcol.broadcast(own(rank), 0, group).clone(),
        ]

    for rank, result in enumerate(on_ranks(size, program)):
        expected = [
            stacked(size).sum(0),
            stacked(size).reshape(-1),
            stacked(size, size).sum(0)[rank : rank + 1],
            own(0),
        ]
        assert same(result, expected)


def test_functional_collective_does_not_write_its_input(on_ranks: OnRanks) -> None:
    def program(rank: int) -> torch.Tensor:
        tensor = own(rank)
        funcol.all_reduce(tensor, "sum", dist.group.WORLD).clone()
        return tensor

    assert same(on_ranks(2, program), [own(0), own(1)])


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


def test_subgroups_of_a_device_mesh(on_ranks: OnRanks) -> None:
    def program(rank: int) -> list[float]:
        mesh = init_device_mesh("cpu", (2, 2), mesh_dim_names=("dp", "tp"))
        sums = []
        for axis in ("dp", "tp"):
            tensor = own(rank, 1)
            dist.all_reduce(tensor, group=mesh.get_group(axis))
            sums.append(tensor.item())
        return sums

    assert on_ranks(4, program) == [[101, 11], [1010, 11], [101, 1100], [1010, 1100]]


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


def test_names_that_torch_asks_for(on_ranks: OnRanks) -> None:
    def program(_rank: int) -> tuple[str, int, str]:
        group = dist.new_group([0, 1])
        dist.barrier(group=group)
        return dist.get_backend(), group.size(), repr(group)

    assert on_ranks(2, program) == [
        ("gloo", 2, f"SimulatedProcessGroup(ranks=(0, 1), rank={rank})")
        for rank in range(2)
    ]


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
