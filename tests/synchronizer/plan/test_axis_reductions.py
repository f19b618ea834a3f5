"""Reductions over mesh axes that placements do not name."""

from typing import Any

import pytest
import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.device_mesh import DeviceMesh, init_device_mesh
from torch.distributed.tensor import Replicate, Shard
from torch.distributed.tensor.placement_types import _StridedShard

from syncverify.synchronizer import (
    GradientSynchronizer,
    InvalidArgumentError,
    PlanMismatchError,
    SynchronizerConfig,
)
from tests.programs import accumulate, lines, parameter, value

BOTH = (Replicate(), Replicate())


def reduced(group: list[nn.Parameter], given: float, **options: Any) -> list[float]:
    """Give every parameter the same gradient, and return the results of two steps."""
    config = SynchronizerConfig(**options)
    with GradientSynchronizer([group], 1, 1, config=config) as synchronizer:
        for _ in "ab":
            synchronizer.zero_grad()
            for each in group:
                accumulate(each, given)
            synchronizer.wait()
        return [value(each) for each in group]


# Rank r gives 2**r; the rows of the mesh are ranks (0, 1) and (2, 3).
WORDS: list[tuple[tuple[str, str], list[float]]] = [
    (("sum", "sum"), [15, 15, 15, 15]),
    (("avg", "sum"), [7.5, 7.5, 7.5, 7.5]),
    (("avg", "avg"), [3.75, 3.75, 3.75, 3.75]),
    (("sum", "none"), [5, 10, 5, 10]),
    (("none", "avg"), [1.5, 1.5, 6, 6]),
    (("none", "none"), [1, 2, 4, 8]),
]


@pytest.mark.parametrize(
    ("names", "words", "expected"),
    [(("dp", "tp"), *row) for row in WORDS] + [(None, *WORDS[3])],
)
def test_every_axis_is_reduced_as_configured(ranks, names, words, expected) -> None:
    def program(rank: int) -> float:
        mesh = init_device_mesh("cpu", (2, 2), mesh_dim_names=names)
        overrides = dict(zip(names or (0, 1), words, strict=True))
        a = parameter(mesh, *BOTH)
        return reduced([a], 2**rank, axis_reductions=overrides)[0]

    assert ranks.run(4, program) == expected


def test_an_axis_on_which_a_parameter_is_sharded_stays_unreduced(ranks) -> None:
    def program(rank: int) -> list[float]:
        mesh = init_device_mesh("cpu", (2, 2), mesh_dim_names=("dp", "tp"))
        strided = parameter(mesh, _StridedShard(0, split_factor=2), Replicate())
        sharded = parameter(mesh, Shard(0), Replicate())
        overrides = {"dp": "avg", "tp": "sum"}
        return reduced([sharded, strided], 2**rank, axis_reductions=overrides)

    assert ranks.run(4, program) == [[3, 3]] * 2 + [[12, 12]] * 2


def test_an_average_over_nobody_else_is_no_collective(ranks, monkeypatch) -> None:
    monkeypatch.setattr(dist, "all_reduce", None)
    monkeypatch.setattr(dist, "all_gather", None)

    def program(rank: int) -> list[float]:
        mesh = init_device_mesh("cpu", (1, 2, 1), mesh_dim_names=("pp", "dp", "tp"))
        a = parameter(mesh, Replicate(), Shard(0), Replicate())
        alone = dist.new_group([rank], use_local_synchronization=True)
        return reduced(
            [a, nn.Parameter(torch.zeros(3))],
            2**rank,
            axis_reductions={"pp": "avg", "tp": "sum"},
            process_group=alone,
            process_group_reduction="avg",
            scaling="split",
        )

    assert ranks.run(2, program) == [[1, 1], [2, 2]]


def buckets(group: list[nn.Parameter], **options: Any) -> list[tuple[str, ...]]:
    config = SynchronizerConfig(**options)
    names = {each: f"p{index}" for index, each in enumerate(group)}
    synchronizer = GradientSynchronizer(
        [group], 1, 1, parameter_names=names, config=config
    )
    return [bucket.parameters for bucket in synchronizer.explain().buckets]


def test_the_same_ranks_share_a_bucket_whatever_mesh_they_are_on(ranks) -> None:
    """Meshes differ in names and shape; equal ranks and an equal divisor make one bucket."""

    def program(rank: int) -> Any:
        square = init_device_mesh("cpu", (2, 2), mesh_dim_names=("dp", "tp"))
        again = DeviceMesh("cpu", [[0, 1], [2, 3]], mesh_dim_names=("a", "b"))
        unnamed = init_device_mesh("cpu", (4,))
        group = [parameter(square, *BOTH), parameter(again, *BOTH)]
        group.append(parameter(unnamed, Replicate()))
        overrides = {"dp": "avg", "tp": "avg", "a": "avg", "b": "avg", 0: "avg"}
        one = buckets(group, axis_reductions=overrides)
        found = reduced(group, 2**rank, axis_reductions=overrides)
        return one, found, buckets(group, axis_reductions={**overrides, "b": "sum"})

    together = [("p2", "p1", "p0")]
    apart = [("p1",), ("p2", "p0")]
    assert ranks.run(4, program) == [(together, [3.75] * 3, apart)] * 4


def test_an_axis_that_no_mesh_has_is_refused(ranks) -> None:
    def program(_: int) -> list[list[str]]:
        mesh = init_device_mesh("cpu", (2,), mesh_dim_names=("dp",))
        frozen = parameter(init_device_mesh("cpu", (2, 1)), *BOTH)
        frozen.requires_grad_(False)
        group = [parameter(mesh, Replicate()), frozen]
        found = []
        for overrides in ({"tp": "avg", 0: "avg", 2: "sum"}, {0: "none", 1: "avg"}):
            config = SynchronizerConfig(axis_reductions=overrides)
            synchronizer = GradientSynchronizer([group], 1, 1, config=config)
            try:
                synchronizer.bind()
            except InvalidArgumentError as error:
                found.append(str(error).splitlines())
            synchronizer.unbind()
        return found

    assert ranks.run(2, program)[1] == [
        [
            "no mesh has an axis 'tp', 2",
            "  expected: axes among 'dp', 0, 1",
            "  got:      axis_reductions={'tp': 'avg', 0: 'avg', 2: 'sum'}",
            "  where:    rank 1 of 2",
            f"  hint: {InvalidArgumentError.hint}",
        ]
    ]


def test_without_any_mesh_there_is_no_axis() -> None:
    config = SynchronizerConfig(axis_reductions={"dp": "avg"})
    synchronizer = GradientSynchronizer([], 1, 1, config=config)
    with pytest.raises(InvalidArgumentError) as caught:
        synchronizer.bind()
    assert lines(caught)[:2] == [
        "no mesh has an axis 'dp'",
        "  expected: axes among none at all",
    ]


def test_a_group_that_a_rank_cannot_use_is_refused_there(ranks) -> None:
    def program(rank: int) -> list[list[str]]:
        group = dist.new_group([0, 1])
        destroyed = dist.new_group([0, 1, 2])
        dist.destroy_process_group(destroyed)
        found = []
        for each in (group, destroyed, "world"):
            config = SynchronizerConfig(process_group=each)
            plain = nn.Parameter(torch.zeros(3))
            synchronizer = GradientSynchronizer([[plain]], 1, 1, config=config)
            try:
                synchronizer.explain()
            except InvalidArgumentError as error:
                found.append(str(error).splitlines())
        return found

    member, _, other = ranks.run(3, program)
    assert [got[2] for got in member] == [
        "  got:      a group that was destroyed",
        "  got:      'world'",
    ]
    assert other[0] == [
        "the process group of ordinary parameters cannot be used",
        "  expected: a process group of which this rank is a member",
        "  got:      a rank that is not a member of it",
        "  where:    rank 2 of 3",
        (
            "  hint: pass a group of which the rank is a member, or None, on every rank, and keep"
            " the group until unbind()"
        ),
    ]
    assert other[1:] == [
        [*got[:3], "  where:    rank 2 of 3", got[4]] for got in member
    ]


PAIRS = [("sum", "avg"), ("sum", "none"), ("none", "avg")]


@pytest.mark.parametrize("words", PAIRS)
def test_ranks_with_different_axis_reductions_are_refused(ranks, words) -> None:
    """The error names the parameter, before a rank waits for a collective that does not come."""

    def program(rank: int) -> list[str]:
        a = parameter(init_device_mesh("cpu", (2,)), Replicate())
        config = SynchronizerConfig(axis_reductions={0: words[rank]})
        synchronizer = GradientSynchronizer(
            [[a]], 1, 1, parameter_names={a: "a"}, config=config
        )
        with pytest.raises(PlanMismatchError) as caught:
            synchronizer.bind()
        assert a.grad is None
        return lines(caught)

    for found in ranks.run(2, program):
        assert found[0] == "ranks disagree about a"


def test_the_refusal_names_the_reduction_of_each_rank(ranks) -> None:
    def program(rank: int) -> str:
        mesh = init_device_mesh("cpu", (2,), mesh_dim_names=("dp",))
        a = parameter(mesh, Replicate())
        config = SynchronizerConfig(
            axis_reductions={"dp": "avg"},
            scaling="split",
            wire_dtype=(torch.bfloat16, None)[rank],
        )
        synchronizer = GradientSynchronizer(
            [[a]], 1, 1, parameter_names={a: "a"}, config=config
        )
        with pytest.raises(PlanMismatchError) as caught:
            synchronizer.bind()
        assert a.grad is None
        return lines(caught)[2]

    shared = (
        "a: torch.float32 of shape (3,), locally (3,) with strides (1,),"
        " placements (R), axis reductions (avg), sent as"
    )
    rest = ", divided by 2, times 0.5 before at element 0 of 32"
    assert ranks.run(2, program)[0] == (
        f"  got:      {shared} bfloat16{rest}, on this rank;"
        f" {shared} float32{rest}, on rank 1"
    )


def test_ranks_that_are_alone_need_not_have_the_same_neighbours(ranks) -> None:
    """`a` is left alone on tp, next to a shard that is larger on some ranks of tp."""

    def program(rank: int) -> list[float]:
        mesh = init_device_mesh("cpu", (2, 2), mesh_dim_names=("dp", "tp"))
        a = parameter(mesh, *BOTH)
        shard = parameter(mesh, Replicate(), Shard(0), numel=40 + 40 * (rank % 2))
        return reduced([shard, a], 2**rank, axis_reductions={"tp": "none"})

    assert ranks.run(4, program) == [[5, 5], [10, 10]] * 2


def test_shards_of_one_parameter_that_nobody_reduces_may_differ(ranks) -> None:
    """The parameter is not reduced on dp, so ranks of tp need not have equal parts of it."""

    def program(rank: int) -> list[float]:
        mesh = init_device_mesh("cpu", (2, 2), mesh_dim_names=("dp", "tp"))
        a = parameter(mesh, Replicate(), Shard(0), numel=3 + rank % 2)
        return reduced([a], 2**rank, axis_reductions={"dp": "none"})

    assert ranks.run(4, program) == [[1], [2], [4], [8]]
