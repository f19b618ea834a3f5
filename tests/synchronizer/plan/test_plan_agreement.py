"""`bind()` raises on ranks that would reduce different things, and names them."""

from datetime import timedelta
from functools import partial
from typing import Any

import pytest
import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.device_mesh import DeviceMesh, init_device_mesh
from torch.distributed.tensor import DTensor, Replicate, Shard

from syncverify.synchronizer import (
    GradientSynchronizer,
    PlanMismatchError,
    SynchronizerConfig,
)
from syncverify.synchronizer.ranks import process_groups
from tests import programs

KIB_MB = 2**-10
GOT = "  got:      "


parameter = partial(programs.parameter, numel=4)


def bind(groups: list[dict[str, nn.Parameter]], **options: Any) -> list[str]:
    """Bind, and return the lines of the error."""
    names = {p: name for group in groups for name, p in group.items()}
    size = options.pop("bucket_size_mb", 1)
    lists = [list(group.values()) for group in groups]
    synchronizer = GradientSynchronizer(
        lists, size, 1, parameter_names=names, **options
    )
    try:
        synchronizer.bind()
    except PlanMismatchError as error:
        assert all(p.grad is None for p in names)
        return str(error).splitlines()
    synchronizer.unbind()
    return []


def test_another_shape_is_refused_with_both_versions(ranks) -> None:
    def program(rank: int) -> list[str]:
        mesh = init_device_mesh("cpu", (2,))
        numels = {"a": 4, "b": 4 + rank, "c": 4}
        named = {n: parameter(mesh, Replicate(), numel=numels[n]) for n in numels}
        return bind([named])

    found, other = ranks.run(2, program)
    assert found[:2] == other[:2]
    assert found == [
        "ranks disagree about b",
        "  expected: the same parameters, in the same order, on ranks that share them",
        GOT + "b: torch.float32 of shape (4,), locally (4,) with strides (1,),"
        " placements (R) at element 4 of 32, on this rank;"
        " b: torch.float32 of shape (5,), locally (5,) with strides (1,),"
        " placements (R) at element 8 of 32, on rank 1",
        "  where:    rank 0 of 2, unlike rank 1",
        f"  hint: {PlanMismatchError.hint}",
    ]


DIFFERENCES = {
    "name": lambda mesh, rank: {f"a{rank}": parameter(mesh, Replicate())},
    "dtype": lambda mesh, rank: {
        "a": parameter(mesh, Replicate(), dtype=(torch.float32, torch.float64)[rank])
    },
    "order": lambda mesh, rank: {
        name: parameter(mesh, Replicate()) for name in ("ab", "ba")[rank]
    },
    "number": lambda mesh, rank: {
        name: parameter(mesh, Replicate()) for name in "ab"[: 1 + rank]
    },
}


@pytest.mark.parametrize("difference", DIFFERENCES)
def test_every_difference_is_refused(ranks, difference) -> None:
    def program(rank: int) -> str:
        mesh = init_device_mesh("cpu", (2,))
        return bind([DIFFERENCES[difference](mesh, rank)])[0]

    for headline in ranks.run(2, program):
        assert headline.startswith("ranks disagree about ")


OPTIONS = [
    ({"bucket_size_mb": KIB_MB}, {"bucket_size_mb": 1}),
    ({}, {"config": SynchronizerConfig(unused="keep_none")}),
]


@pytest.mark.parametrize("by_rank", OPTIONS, ids=["buckets", "policy"])
def test_options_that_change_the_buckets_are_a_difference(ranks, by_rank) -> None:
    def program(rank: int) -> list[str]:
        mesh = init_device_mesh("cpu", (2,))
        group = {name: parameter(mesh, Replicate(), numel=512) for name in "ab"}
        return bind([group], **by_rank[rank])

    assert all(found[0] == "ranks disagree about b" for found in ranks.run(2, program))


def test_ranks_that_disagree_about_groups_do_not_hang(ranks) -> None:
    """Ranks 0 and 1 believe in rows, the others in all four."""

    def program(rank: int) -> list[str]:
        mesh = init_device_mesh("cpu", (2, 2))
        first = Replicate() if rank > 1 else Shard(0)
        return bind([{"a": parameter(mesh, first, Replicate())}])

    found = ranks.run(4, program)
    assert [len(lines) > 0 for lines in found] == [False, False, True, True]
    assert found[2][0] == "ranks disagree about a"
    assert found[2][3] == "  where:    rank 2 of 4, unlike rank 0, 1"


def test_what_ranks_do_not_share_may_differ(ranks) -> None:
    """Each row of the mesh has another model, and local parameters differ too."""

    def program(rank: int) -> list[str]:
        mesh = init_device_mesh("cpu", (2, 2))
        group = {f"row {rank // 2}": parameter(mesh, Shard(0), Replicate())}
        group["shared"] = parameter(mesh, Replicate(), Replicate())
        group[f"local {rank}"] = nn.Parameter(torch.zeros(rank))
        return bind([group])

    assert ranks.run(4, program) == [[]] * 4


def test_the_order_across_groups_of_ranks_is_part_of_the_plan(ranks) -> None:
    def program(rank: int) -> list[str]:
        mesh = init_device_mesh("cpu", (2, 2))
        both = parameter(mesh, Replicate(), Replicate())
        row = parameter(mesh, Shard(0), Replicate())
        group = {"both": both, "row": row} if rank % 2 else {"row": row, "both": both}
        return bind([group])

    assert all(found for found in ranks.run(4, program))


def test_a_rank_that_does_not_bind_is_named(ranks) -> None:
    def program(rank: int) -> list[str]:
        mesh = init_device_mesh("cpu", (2,))
        if rank:
            return []
        dist.distributed_c10d._get_default_store().set_timeout(timedelta(seconds=0.01))
        return bind([{"a": parameter(mesh, Replicate())}])

    found = ranks.run(2, program)[0]
    assert found[:2] == [
        "rank 1 did not call bind()",
        "  expected: bind() on every rank that shares buckets",
    ]
    assert found[3] == "  where:    rank 0 of 2, bind() number 1"


def test_ranks_may_bind_other_synchronizers_with_other_ranks_before(ranks) -> None:
    """An encoder on ranks 0 and 1 comes before a model on ranks 0 to 3."""

    def program(rank: int) -> list[str]:
        meshes = [DeviceMesh("cpu", part) for part in ([0, 1], [2, 3], [0, 1, 2, 3])]
        encoder = [{"encoder": parameter(meshes[0], Replicate())}]
        model = [{"model": parameter(meshes[2], Replicate())}]
        found = bind(encoder) if rank < 2 else []
        dist.distributed_c10d._get_default_store().set_timeout(timedelta(seconds=5))
        return [
            *found,
            *bind(model),
            *(bind(encoder) if rank < 2 else []),
            *bind(model),
        ]

    assert ranks.run(4, program) == [[], [], [], []]


def test_a_bind_of_empty_parts_counts_for_ranks_with_the_others(ranks) -> None:
    """Only ranks 0 and 2 have an element of the first synchronizer's parameter."""

    def program(rank: int) -> list[str]:
        mesh = init_device_mesh("cpu", (2, 2))
        part = torch.zeros(1 - rank % 2)
        spread = DTensor.from_local(
            part, mesh, [Replicate(), Shard(0)], shape=(1,), stride=(1,)
        )
        whole = DTensor.from_local(torch.zeros(3), mesh, [Replicate(), Replicate()])
        store = dist.distributed_c10d._get_default_store()
        store.set_timeout(timedelta(seconds=5))
        return [
            *bind([{"spread": nn.Parameter(spread)}]),
            *bind([{"whole": nn.Parameter(whole)}]),
        ]

    assert ranks.run(4, program) == [[], [], [], []]


def test_a_bind_for_which_a_peer_did_not_come_is_taken_back(ranks) -> None:
    """The note of a failed `bind()` is stale for a peer that comes to the next `bind()`."""

    def program(rank: int) -> list[str]:
        mesh = init_device_mesh("cpu", (2,))
        store = dist.distributed_c10d._get_default_store()
        if rank == 0:
            store.set_timeout(timedelta(seconds=0.01))
            assert bind([{"old": parameter(mesh, Replicate())}]) != []
            store.set_timeout(timedelta(seconds=5))
        dist.barrier()
        return bind([{"new": parameter(mesh, Replicate(), numel=5)}])

    assert ranks.run(2, program) == [[], []]


SHARED = {"rebuild": (False, True), "unequal_replicas": ("error", "keep")}


@pytest.mark.parametrize("option", SHARED)
def test_an_option_that_ranks_have_to_share_is_compared(ranks, option) -> None:
    one, other = SHARED[option]

    def program(rank: int) -> list[str]:
        mesh = init_device_mesh("cpu", (2,))
        config = SynchronizerConfig(**{option: SHARED[option][rank]})
        return bind([{"a": parameter(mesh, Replicate())}], config=config)

    assert ranks.run(2, program)[0][:4] == [
        f"ranks disagree about {option}",
        "  expected: the same parameters, in the same order, on ranks that share them",
        GOT + f"{option}: config {option}={one!r}, on this rank;"
        f" {option}: config {option}={other!r}, on rank 1",
        "  where:    rank 0 of 2, unlike rank 1",
    ]


def test_a_new_default_group_on_the_same_store_meets_no_stale_plan(ranks) -> None:
    """Rank 1 binds in the first group only; its old plan is no answer in the second."""

    def program(rank: int) -> list[str]:
        prefixed = dist.distributed_c10d._get_default_store()
        # The store that `init_process_group` was given.
        store = prefixed.underlying_store
        a = {"a": parameter(init_device_mesh("cpu", (2,)), Replicate())}
        assert bind([a]) == []
        dist.barrier()
        dist.destroy_process_group()
        dist.init_process_group("threaded", rank=rank, world_size=2, store=store)
        if rank:
            return []
        store.set_timeout(timedelta(seconds=0.01))
        return bind([a])

    assert ranks.run(2, program)[0][0] == "rank 1 did not call bind()"


def test_process_groups_of_a_new_default_group_have_new_names() -> None:
    """An equal name would find the leftovers of an equal group in the store."""
    store, names = dist.HashStore(), set()
    for _ in range(2):
        dist.init_process_group("gloo", rank=0, world_size=1, store=store)
        default = dist.distributed_c10d._get_default_group()
        names.add(process_groups._unused_name(default, (0,)))
        dist.destroy_process_group()
    assert len(names) == 2
