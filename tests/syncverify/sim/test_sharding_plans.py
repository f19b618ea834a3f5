"""Obvious plans: the ones that torch makes, without its search."""

import dataclasses
import itertools
from collections import Counter
from collections.abc import Callable, Iterator
from typing import Any

import pytest
import torch
from torch.distributed.device_mesh import DeviceMesh, init_device_mesh
from torch.distributed.tensor import (
    DTensor,
    Partial,
    Placement,
    Replicate,
    Shard,
    distribute_tensor,
)
from torch.distributed.tensor._op_schema import OpSchema

from syncverify import simulate
from syncverify.sim import sharding_plans
from syncverify.sim.sharding_plans import knowing_obvious_plans

aten = torch.ops.aten
PROPAGATOR = DTensor._op_dispatcher.sharding_propagator
OnRanks = Callable[[int, Callable[[int], Any]], list[Any]]
SHAPES = ((4, 6), (3, 1), (5,), (0, 2))  # even, of size 1, uneven, empty


@pytest.fixture
def searches(monkeypatch: pytest.MonkeyPatch) -> Counter[str]:
    """Count how often torch itself works out a plan, by op."""
    counts: Counter[str] = Counter()
    work_out = PROPAGATOR.propagate_op_sharding_non_cached

    def counting(schema: OpSchema) -> Any:
        counts[str(schema.op)] += 1
        return work_out(schema)

    monkeypatch.setattr(PROPAGATOR, "propagate_op_sharding_non_cached", counting)
    return counts


def distributed(
    mesh: DeviceMesh, *placements: Placement, shape: tuple[int, ...] = (4, 6)
) -> DTensor:
    """Make a row-major tensor of a global shape, as far as plans know."""
    return DTensor.from_local(
        torch.ones(shape),
        mesh,
        placements,
        run_check=False,
        shape=torch.Size(shape),
        stride=torch.ones(shape).stride(),
    )


def schema_of(op: Any, *args: Any, **kwargs: Any) -> OpSchema:
    schema = DTensor._op_dispatcher.unwrap_to_op_info(op, args, kwargs).schema
    assert schema is not None
    return schema


def test_torch_searches_again_by_other_rules(
    on_ranks: OnRanks, searches: Counter[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    sharding_plans._KNOWN_PLANS.clear()

    def program(rank: int) -> None:
        mesh = init_device_mesh("cpu", (2,), mesh_dim_names=("dp",))
        distributed(mesh, Shard(0)).mul(2)

    on_ranks(2, program)
    rules = PROPAGATOR.op_single_dim_strategy_funcs
    own = dataclasses.replace(rules[aten.mul.Tensor])
    monkeypatch.setitem(rules, aten.mul.Tensor, own)
    on_ranks(2, program)
    assert searches["aten.mul.Tensor"] == 2


def test_each_rank_of_each_run_gets_its_own_mesh(on_ranks: OnRanks) -> None:
    """An equal one of another rank or run has the same hash, and foreign groups."""

    def program(rank: int) -> bool:
        mesh = init_device_mesh("cpu", (2,), mesh_dim_names=("dp",))
        copy = distributed(mesh, Replicate()).detach().to(torch.float16)
        group = copy.device_mesh.get_group("dp")
        return copy.device_mesh is mesh and group.rank() == rank

    for _ in range(2):
        assert on_ranks(2, program) == [True, True]


def schemas(
    mesh: DeviceMesh, shape: tuple[int, ...], reduction: str
) -> Iterator[OpSchema]:
    """Everything that an op may see on a mesh of two axes."""
    choices = (Replicate(), Partial(reduction), *map(Shard, range(len(shape))))
    for placed in itertools.product(choices, repeat=2):
        tensor = distributed(mesh, *placed, shape=shape)
        yield schema_of(aten.detach.default, tensor)
        yield schema_of(aten._to_copy.default, tensor, dtype=torch.float16)
        for others in (placed, (Replicate(), Shard(0))):
            other = distributed(mesh, *others, shape=shape)
            for op in (aten.add_.Tensor, aten.copy_.default):
                yield schema_of(op, tensor, other)
    wide = distributed(mesh, *[Replicate()] * 2, shape=shape)
    one = torch.ones(shape[-1:])
    narrow = DTensor.from_local(one, mesh, [Replicate()] * 2, run_check=False)
    yield schema_of(aten.add_.Tensor, wide, narrow)
    yield schema_of(aten.add_.Tensor, wide, wide, alpha=2)
    # Overlapping elements become separate ones: a conversion has other strides.
    expanded = narrow.expand(3, *shape[-1:])
    for strided in (wide.transpose(0, -1), expanded):
        yield schema_of(aten._to_copy.default, strided, dtype=torch.float16)


def other_schemas(mesh: DeviceMesh) -> Iterator[OpSchema]:
    """Ops that autograd, hooks and synchronizers issue, whose plan torch has to find."""
    choices = (Replicate(), Partial(), Shard(0), Shard(1))
    for placed in itertools.product(choices, repeat=2):
        tensor = distributed(mesh, *placed)
        other = distributed(mesh, Replicate(), Shard(0))
        yield schema_of(aten.mul.Tensor, tensor, 2)
        yield schema_of(aten.mul.Tensor, tensor, 2.0)
        yield schema_of(aten.add.Tensor, tensor, other)
        yield schema_of(aten.div.Tensor, tensor, 3)
        yield schema_of(aten.clone.default, tensor)
        yield schema_of(aten.view.default, tensor, [24])
        yield schema_of(aten.expand.default, tensor, [2, 4, 6])
        yield schema_of(aten.sum.dim_IntList, tensor, [0])
        yield schema_of(aten.sum.dim_IntList, tensor, [False])
        yield schema_of(
            aten.new_empty_strided.default, tensor, [4, 6], [6, 1], dtype=torch.float64
        )


@pytest.mark.long
def test_known_plans_are_those_that_torch_makes(on_ranks: OnRanks) -> None:
    work_out = PROPAGATOR.propagate_op_sharding_non_cached
    searched = Counter[int]()

    def program(rank: int) -> None:
        mesh = init_device_mesh("cpu", (2, 2), mesh_dim_names=("dp", "tp"))

        def searching(schema: OpSchema) -> Any:
            searched[rank] += 1
            return work_out(schema)

        ask = knowing_obvious_plans(searching)
        if rank in {0, 3}:
            assert wrong_plans(ask, [*other_schemas(mesh)]) == []

    sharding_plans._KNOWN_PLANS.clear()
    on_ranks(4, program)
    assert 10 < searched[3] < searched[0] / 2  # neither all nor none


def outcome(ask: Callable[[OpSchema], Any], schema: OpSchema) -> Any:
    try:
        return ask(schema)
    except RuntimeError as error:  # torch finds no plan
        return str(error)


def wrong_plans(
    ask: Callable[[OpSchema], Any], schemas: list[OpSchema]
) -> list[OpSchema]:
    """Return the schemas that get another plan, or another error, than from torch."""
    work_out = PROPAGATOR.propagate_op_sharding_non_cached
    return [each for each in schemas if outcome(ask, each) != outcome(work_out, each)]


@pytest.mark.long
@pytest.mark.parametrize(
    ("shape", "reduction"),
    [*zip(SHAPES, ("sum", "avg", "max", "sum"), strict=True)],
    ids=str,
)
def test_obvious_plans_are_those_that_torch_makes(
    on_ranks: OnRanks, shape: tuple[int, ...], reduction: str
) -> None:
    work_out = PROPAGATOR.propagate_op_sharding_non_cached
    searched = list[OpSchema]()

    def searching(schema: OpSchema) -> Any:
        searched.append(schema)
        return work_out(schema)

    ask = knowing_obvious_plans(searching)

    def program(rank: int) -> int:
        mesh = init_device_mesh("cpu", (2, 2), mesh_dim_names=("dp", "tp"))
        if rank > 0:
            return 0
        listed = list(schemas(mesh, shape, reduction))
        assert wrong_plans(ask, listed) == []
        return len(listed)

    num_schemas = sum(on_ranks(4, program))
    assert 10 < len(searched) < num_schemas - 10  # neither all nor none


def uneven(rank: int) -> torch.Tensor:
    mesh = init_device_mesh("cuda", (2, 2))
    tensor = torch.arange(15.0).view(5, 3)
    whole = distribute_tensor(tensor, mesh, [Shard(0), Shard(0)]).full_tensor()
    return (whole == tensor).all()


def test_each_rank_has_the_plans_of_its_own_part() -> None:
    """Two splits of five rows leave parts of two rows and of one."""
    played = simulate(uneven, 4)
    assert played.is_right, str(played)
    assert [bool(each) for each in played.results] == [True] * 4
