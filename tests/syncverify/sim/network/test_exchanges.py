"""All-to-all, messages, and calls that are issued as one, beside plain definitions."""

from collections.abc import Callable
from typing import Any

import pytest
import torch
import torch.distributed as dist
import torch.distributed._functional_collectives as funcol

from syncverify.sim.machine import SimulatedMachine
from syncverify.sim.network.rendezvous import Mismatch

OnRanks = Callable[[int, Callable[[int], Any]], list[Any]]
CPU = torch.device("cpu")
# torch 2.13 renamed some functions; the old names are the ones in use.
OLD_NAMES = pytest.mark.filterwarnings("ignore:.*is deprecated:FutureWarning")


def part(giver: int, taker: int, numel: int = 2) -> torch.Tensor:
    """Elements of one rank for another: whole numbers that name both ranks and the place."""
    return torch.arange(numel) + 100 * giver + 10 * taker


def lists(tensors: list[torch.Tensor]) -> list[list[int]]:
    return [tensor.tolist() for tensor in tensors]


@pytest.mark.parametrize("size", [1, 3])
def test_all_to_all_of_uneven_parts(on_ranks: OnRanks, size: int) -> None:
    """Rank r gives r + p elements to rank p, nothing to itself if it is the first."""

    def program(rank: int) -> list[list[int]]:
        outputs = [torch.zeros(rank + peer, dtype=torch.int64) for peer in range(size)]
        inputs = [part(rank, peer, rank + peer) for peer in range(size)]
        dist.all_to_all(outputs, inputs)
        single = torch.zeros(sum(map(len, outputs)), dtype=torch.int64)
        counts = [rank + peer for peer in range(size)]
        dist.all_to_all_single(single, torch.cat(inputs), counts, counts)
        functional = funcol.all_to_all_single(
            torch.cat(inputs), counts, counts, dist.group.WORLD
        )
        assert single.equal(functional)
        assert single.equal(torch.cat(outputs))
        return lists(outputs)

    assert on_ranks(size, program) == [
        lists([part(peer, rank, rank + peer) for peer in range(size)])
        for rank in range(size)
    ]


def test_all_to_all_single_splits_rows_evenly_by_default(on_ranks: OnRanks) -> None:
    def program(rank: int) -> list[list[int]]:
        output = torch.zeros(4, 2, dtype=torch.int64)
        rows = torch.stack([part(rank, peer) for peer in (0, 0, 1, 1)])
        dist.all_to_all_single(output, rows)
        return output.tolist()

    assert on_ranks(2, program) == [
        lists([part(giver, rank) for giver in (0, 0, 1, 1)]) for rank in range(2)
    ]


def test_uneven_parts_are_gathered_and_scattered_as_by_nccl(on_ranks: OnRanks) -> None:
    def program(rank: int) -> tuple[list[list[int]], list[int]]:
        outputs = [torch.zeros(1 + peer, dtype=torch.int64) for peer in range(3)]
        dist.all_gather(outputs, part(rank, 0, 1 + rank))
        own = torch.zeros(1 + rank, dtype=torch.int64)
        dist.reduce_scatter(own, [part(rank, peer, 1 + peer) for peer in range(3)])
        return lists(outputs), own.tolist()

    assert on_ranks(3, program) == [
        (
            lists([part(peer, 0, 1 + peer) for peer in range(3)]),
            sum(part(giver, rank, 1 + rank) for giver in range(3)).tolist(),
        )
        for rank in range(3)
    ]


@pytest.mark.filterwarnings("ignore:.*all_gather_coalesced:FutureWarning")
def test_all_gather_coalesced(on_ranks: OnRanks) -> None:
    def program(rank: int) -> list[list[list[int]]]:
        outputs = [
            [torch.zeros(n, dtype=torch.int64) for n in (1, 3)] for _ in range(2)
        ]
        dist.all_gather_coalesced(outputs, [part(rank, 0, 1), part(rank, 1, 3)])
        return [lists(of_rank) for of_rank in outputs]

    expected = [lists([part(r, 0, 1), part(r, 1, 3)]) for r in range(2)]
    assert on_ranks(2, program) == [expected] * 2


@OLD_NAMES
@pytest.mark.parametrize("device", [None, CPU], ids=["fast path", "device"])
def test_collectives_coalesced_by_torch(
    on_ranks: OnRanks, device: torch.device | None
) -> None:
    """As FSDP2 and Megatron issue them: one handle for several calls of one kind."""

    def program(rank: int) -> list[list[int]]:
        reduced = [part(rank, 0), part(rank, 1, 3)]
        whole = [torch.zeros(2 * n, dtype=torch.int64) for n in (1, 3)]
        pieces = [torch.zeros(n, dtype=torch.int64) for n in (1, 2)]
        with dist._coalescing_manager(device=device, async_ops=True) as first:
            for tensor in reduced:
                dist.all_reduce(tensor)
        with dist._coalescing_manager(device=device):
            for output, numel in zip(whole, (1, 3), strict=True):
                dist.all_gather_into_tensor(output, part(rank, 0, numel))
        with dist._coalescing_manager(device=device):
            for output, numel in zip(pieces, (2, 4), strict=True):
                dist.reduce_scatter_tensor(output, part(rank, 0, numel))
        first.wait()
        return lists([*reduced, *whole, *pieces])

    def expected(rank: int) -> list[torch.Tensor]:
        totals = [part(0, 0, n) + part(1, 0, n) for n in (2, 4)]
        return [
            part(0, 0) + part(1, 0),
            part(0, 1, 3) + part(1, 1, 3),
            *(torch.cat([part(0, 0, n), part(1, 0, n)]) for n in (1, 3)),
            *(total.chunk(2)[rank] for total in totals),
        ]

    assert on_ranks(2, program) == [lists(expected(rank)) for rank in range(2)]


def test_calls_within_a_coalesced_block_wait_at_its_end(on_ranks: OnRanks) -> None:
    """Synchronous ones too: NCCL starts none before the block ends."""

    def program(rank: int) -> list[object]:
        tensors = [part(rank, 0), part(rank, 1)]
        with dist._coalescing_manager(device=CPU, async_ops=True) as manager:
            for root, tensor in enumerate(tensors):
                dist.broadcast(tensor, src=root)
            before = lists(tensors)
        works = manager.works
        while not all(work.is_completed() for work in works):
            pass
        return [before, lists(tensors), all(work.is_success() for work in works)]

    after = lists([part(0, 0), part(1, 1)])
    assert on_ranks(2, program) == [
        [lists([part(rank, 0), part(rank, 1)]), after, True] for rank in range(2)
    ]


# Messages.


def test_message_arrives_when_it_is_waited_for(on_ranks: OnRanks) -> None:
    def program(rank: int) -> list[list[int]]:
        tensor = part(rank, rank)
        if rank == 0:
            dist.send(tensor, dst=1)
            return []
        work = dist.irecv(tensor, src=0)
        before = tensor.tolist()
        work.wait()
        return [before, tensor.tolist()]

    assert on_ranks(2, program)[1] == lists([part(1, 1), part(0, 0)])


def test_messages_of_a_pair_arrive_in_order_whatever_their_tags(
    on_ranks: OnRanks,
) -> None:
    """As on NCCL, which knows no tags."""

    def program(rank: int) -> list[list[int]]:
        tensors = [part(rank, 0), part(rank, 1)]
        works = [
            dist.isend(t, 1, tag=tag) if rank == 0 else dist.irecv(t, 0, tag=1 - tag)
            for tag, t in enumerate(tensors)
        ]
        for work in works:
            work.wait()
        return lists(tensors)

    assert on_ranks(2, program)[1] == lists([part(0, 0), part(0, 1)])


def test_a_batch_of_torch_may_ask_the_backend_of_the_group(on_ranks: OnRanks) -> None:
    """As torch 2.14 does, which no longer looks at the class of the group first."""
    text = "def batch_isend_irecv(group, device): return group._get_backend(device)"
    names = dict[str, Any]()
    exec(compile(text, dist.distributed_c10d.__file__, "exec"), names)

    def program(_: int) -> bool:
        device = torch.device("cpu")
        backend = names["batch_isend_irecv"](dist.group.WORLD, device)
        return bool(backend.supports_coalescing)

    assert on_ranks(2, program) == [False, False]


def test_a_message_to_oneself_arrives(on_ranks: OnRanks) -> None:
    def program(rank: int) -> list[int]:
        received = torch.zeros(2, dtype=torch.int64)
        works = [dist.isend(part(rank, 0), rank), dist.irecv(received, rank)]
        for work in works:
            work.wait()
        return received.tolist()

    assert on_ranks(1, program) == [part(0, 0).tolist()]


def test_messages_leave_the_count_of_collectives_alone(on_ranks: OnRanks) -> None:
    """Rank 2 takes no part in the message, and meets the others all the same."""

    def program(rank: int) -> list[int]:
        if rank < 2:
            tensor = part(rank, 0)
            (dist.send if rank == 0 else dist.recv)(tensor, 1 - rank)
        total = part(rank, 0)
        dist.all_reduce(total)
        return total.tolist()

    assert on_ranks(3, program) == [sum(part(r, 0) for r in range(3)).tolist()] * 3


def ends(program: Callable[[int], Any]) -> Mismatch | tuple[str, ...]:
    machine = SimulatedMachine(2)
    _, stall = machine.run(program)
    if machine.world.mismatch is not None:
        return machine.world.mismatch
    return stall.details


def test_senders_that_wait_for_each_other_are_a_circle() -> None:
    *_, cycle = ends(lambda rank: dist.send(part(rank, 0), 1 - rank))
    assert cycle == "wait-for cycle: rank 0 -> rank 1 -> rank 0"


def two(rank: int, dtype: torch.dtype = torch.float32) -> torch.Tensor:
    return torch.ones(2 + rank, dtype=dtype)


DISAGREEMENTS = {
    "elements": (lambda rank: dist.all_reduce(two(rank)), "all_reduce SUM of 2 x float32",
        "all_reduce SUM of 3 x float32"),
    "dtype": (lambda rank: dist.broadcast(two(0, (torch.int32, torch.float32)[rank]), 0),
        "broadcast of 2 x int32", "broadcast of 2 x float32"),
    "reduction": (
        lambda rank: dist.reduce(two(0), 0, dist.ReduceOp.MAX if rank else dist.ReduceOp.SUM),
        "reduce SUM of 2 x float32", "reduce MAX of 2 x float32"),
    "root": (lambda rank: dist.reduce(two(0), rank), "rank 0: reduce", "rank 1: reduce"),
    "output": (lambda rank: dist.scatter(two(rank), None if rank else [two(0), two(0)]),
        "rank 0: scatter", "rank 1: scatter"),
    "dtype of a message": (
        lambda rank: (dist.recv(two(0, torch.int64), 0) if rank else dist.send(two(0), 1)),
        "send of 2 x float32", "recv of 2 x int64"),
    "part": (
        lambda rank: dist.all_to_all([torch.ones(1), torch.ones(1)],
        [torch.ones(1 + rank), torch.ones(1)]),
        "all_to_all of [1, 1] for the ranks and [1, 1] from",
        "all_to_all of [2, 1] for the ranks and [1, 1] from"),
}  # fmt: skip


@pytest.mark.parametrize(
    ("program", "first", "second"), DISAGREEMENTS.values(), ids=DISAGREEMENTS
)
def test_ranks_that_expect_something_else_are_named(
    program: Callable[[int], Any], first: str, second: str
) -> None:
    found = ends(program)
    assert isinstance(found, Mismatch)
    assert first in found.lines[0]
    assert second in found.lines[1]


def test_part_for_oneself_that_does_not_fit_is_an_error_of_its_own(
    on_ranks: OnRanks,
) -> None:
    def program(rank: int) -> None:
        outputs = [torch.zeros(2), torch.zeros(2)]
        inputs = [torch.zeros(2), torch.zeros(2)]
        inputs[rank] = torch.zeros(3)
        dist.all_to_all(outputs, inputs)

    with pytest.raises(RuntimeError, match="shape"):
        on_ranks(2, program)
