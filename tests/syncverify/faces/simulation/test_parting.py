"""Reports of ranks that do not meet say where their ways part."""

from collections.abc import Callable
from typing import Any

import pytest
import torch
import torch.distributed as dist
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.tensor import DTensor, Shard
from torch.nn.parallel import DistributedDataParallel

from syncverify import simulate

_GROUPS = {"tp": [0, 1, 2], "dp": [0, 1, 2, 3]}


def _reduces_in(order: Callable[[int, list[str]], list[str]]) -> None:
    rank = dist.get_rank()
    made = {
        name: dist.new_group(ranks, group_desc=name) for name, ranks in _GROUPS.items()
    }
    mine = [name for name, ranks in _GROUPS.items() if rank in ranks]
    for name in order(rank, mine):
        dist.all_reduce(torch.ones(4, device="cuda"), group=made[name])


def orders_of_two_stages(_rank: int) -> None:
    by = {False: str, True: lambda name: len(_GROUPS[name])}
    _reduces_in(lambda rank, names: sorted(names, key=by[rank > 1]))


def orders_of_two_branches(rank: int) -> None:
    groups = [dist.new_group([*range(4)]) for _ in range(2)]

    def reduces(at: int) -> None:
        dist.all_reduce(torch.ones(4, device="cuda"), group=groups[at])

    if rank < 2:
        reduces(0), reduces(1)
    else:
        reduces(1), reduces(0)


def one_order(_rank: int) -> None:
    _reduces_in(lambda _, names: sorted(names))


def accumulates(rank: int, left_by: int | None = 1) -> None:
    model = DistributedDataParallel(torch.nn.Linear(4, 1).cuda())
    for step in range(4):
        if step == 2 and rank == left_by:
            continue
        model(torch.ones(2, 4, device="cuda")).sum().backward()


def gathers(rank: int, use: Any = DTensor.full_tensor, **whole: Any) -> None:
    mesh = init_device_mesh("cuda", (2,))
    local = torch.ones(3 - rank, 4, device="cuda")
    use(DTensor.from_local(local, mesh, [Shard(0)], **whole) * 2)


_OF_FOUR = (orders_of_two_stages, orders_of_two_branches, one_order)
# The lines of the branches, which differ; that of the collective does not.
_FIRST, _SECOND = (
    orders_of_two_branches.__code__.co_firstlineno + after for after in (7, 9)
)
SAID = {
    orders_of_two_stages: (
        "parted: likely, groups are met in opposite orders at",
        "first on ranks 0, 1, 3: group 'dp' of ranks [0, 1, 2, 3]",
        "first on rank 2: group 'tp' of ranks [0, 1, 2] seen",
        "hint: launch on all communicators in the same order on every rank",
    ),
    orders_of_two_branches: (
        "parted: likely, groups are met in opposite orders at",
        f"test_parting.py:{_FIRST} in orders_of_two_branches first on ranks 2, 3: group ",
        f"test_parting.py:{_SECOND} in orders_of_two_branches seen",
    ),
    accumulates: (
        "parted: ranks 0, 1 last met in all_reduce SUM of 5 x float32",
        "in accumulates: 4 on rank 0, 3 on rank 1 seen",
        "run a loop that communicates equally often on every rank",
    ),
    gathers: (
        "VIOLATION: collectives_match_across_ranks (uneven_shards)",
        "in gathers gets shards of other sizes: [3, 4] on rank 0, [2, 4] on rank 1",
        "hint: pass `shape=` and `stride=`",
    ),
}


@pytest.mark.parametrize("program", SAID)
def test_a_report_says_where_ranks_part(program: Callable[..., object]) -> None:
    text = " ".join(str(simulate(program, 4 if program in _OF_FOUR else 2)).split())
    assert [each for each in SAID[program] if each not in text] == []


@pytest.mark.parametrize(
    "program",
    [
        one_order,
        lambda rank: accumulates(rank, None),
        lambda rank: gathers(rank, shape=torch.Size((5, 4)), stride=(4, 1)),
        lambda rank: gathers(rank, use=DTensor.to_local),
    ],
)
def test_right_twins_are_silent(program: Callable[..., object]) -> None:
    assert not simulate(program, 4 if program in _OF_FOUR else 2).violations
