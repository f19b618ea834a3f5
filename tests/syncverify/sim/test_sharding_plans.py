"""Plans that ranks and runs share: the ones that torch makes, without a mesh."""

import itertools
from collections import Counter
from collections.abc import Callable, Iterator
from typing import Any

import pytest
import torch
from torch.distributed.device_mesh import DeviceMesh, init_device_mesh
from torch.distributed.tensor import DTensor, Partial, Placement, Replicate, Shard
from torch.distributed.tensor._op_schema import OpSchema

from syncverify.sim import sharding_plans
from syncverify.sim.machine import SimulatedMachine
from syncverify.sim.sharding_plans import remembered_plans, remembering

aten = torch.ops.aten
PROPAGATOR = DTensor._op_dispatcher.sharding_propagator
OnRanks = Callable[[int, Callable[[int], Any]], list[Any]]


@pytest.fixture(autouse=True)
def nothing_remembered(monkeypatch: pytest.MonkeyPatch) -> dict[Any, Any]:
    plans: dict[Any, Any] = {}
    monkeypatch.setattr(sharding_plans, "_PLANS", plans)
    return plans


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


def distributed(mesh: DeviceMesh, *placements: Placement) -> DTensor:
    """Make a tensor of 4 x 6 elements, as far as plans know."""
    return DTensor.from_local(
        torch.ones(4, 6),
        mesh,
        placements,
        run_check=False,
        shape=torch.Size((4, 6)),
        stride=(6, 1),
    )


def schema_of(op: Any, *args: Any, **kwargs: Any) -> OpSchema:
    schema = DTensor._op_dispatcher.unwrap_to_op_info(op, args, kwargs).schema
    assert schema is not None
    return schema


def in_place_sum(rank: int) -> DTensor:
    mesh = init_device_mesh("cpu", (2,), mesh_dim_names=("dp",))
    tensor = distributed(mesh, Replicate())
    return tensor.add_(distributed(mesh, Replicate()))


def test_a_plan_is_worked_out_once_for_all_ranks_and_runs(
    on_ranks: OnRanks, searches: Counter[str]
) -> None:
    for _ in range(2):
        on_ranks(2, in_place_sum)
    assert searches["aten.add_.Tensor"] == 1


def test_other_ops_are_left_to_torch(on_ranks: OnRanks, searches: Counter[str]) -> None:
    def program(rank: int) -> None:
        in_place_sum(rank).mul_(2)

    for _ in range(2):
        on_ranks(2, program)
    assert searches["aten.mul_.Tensor"] == 4


def test_detach_needs_no_search(on_ranks: OnRanks, searches: Counter[str]) -> None:
    def program(rank: int) -> Any:
        mesh = init_device_mesh("cpu", (2,), mesh_dim_names=("dp",))
        return distributed(mesh, Shard(0)).detach().placements

    assert on_ranks(2, program) == [(Shard(0),)] * 2
    assert searches["aten.detach.default"] == 0


def test_each_rank_of_each_run_gets_its_own_mesh(on_ranks: OnRanks) -> None:
    """An equal one of another rank or run has the same hash, and foreign groups."""

    def program(rank: int) -> bool:
        mesh = init_device_mesh("cpu", (2,), mesh_dim_names=("dp",))
        copy = distributed(mesh, Replicate()).detach().to(torch.float16)
        group = copy.device_mesh.get_group("dp")
        return copy.device_mesh is mesh and group.rank() == rank

    for _ in range(2):
        assert on_ranks(2, program) == [True, True]


def test_plans_hold_no_mesh_and_so_no_process_group(
    on_ranks: OnRanks, nothing_remembered: dict[Any, Any]
) -> None:
    def parts(value: object) -> Iterator[object]:
        yield value
        if isinstance(value, tuple):
            yield from itertools.chain.from_iterable(map(parts, value))

    on_ranks(2, in_place_sum)
    kept = [
        part
        for key, plan in nothing_remembered.items()
        for held in (key, plan.placements, plan.tensor_meta, plan.shard_order)
        for part in parts(held)
    ]
    assert kept
    assert not any(hasattr(part, "mesh") for part in kept)
    assert not any(isinstance(part, DeviceMesh) for part in kept)


def schemas(mesh: DeviceMesh) -> Iterator[OpSchema]:
    """Everything that an op may see on a mesh of two axes."""
    choices = (Replicate(), Shard(0), Shard(1), Partial())
    for placed in itertools.product(choices, repeat=2):
        tensor = distributed(mesh, *placed)
        yield schema_of(aten.detach.default, tensor)
        yield schema_of(aten._to_copy.default, tensor, dtype=torch.float16)
        for others in (placed, (Replicate(), Shard(0))):
            for op in (aten.add_.Tensor, aten.copy_.default):
                yield schema_of(op, tensor, distributed(mesh, *others))


@pytest.mark.long
def test_remembered_plans_are_those_that_torch_makes(on_ranks: OnRanks) -> None:
    work_out = PROPAGATOR.propagate_op_sharding_non_cached
    plans: dict[Any, Any] = {}
    ask = remembering(work_out, plans)

    def program(rank: int) -> int:
        mesh = init_device_mesh("cpu", (2, 2), mesh_dim_names=("dp", "tp"))
        if rank in {1, 2}:  # the other two have no coordinate in common
            return 0
        listed = list(schemas(mesh))
        for schema in listed:
            assert ask(schema) == work_out(schema), schema
        return len(listed)

    num_schemas = sum(on_ranks(4, program))
    assert 40 < len(plans) < num_schemas / 2  # some are never remembered


@pytest.mark.parametrize("sizes", [(2,), (1, 2)])
def test_meshes_of_another_layout_share_nothing(
    on_ranks: OnRanks, searches: Counter[str], sizes: tuple[int, ...]
) -> None:
    def program(rank: int) -> None:
        mesh = init_device_mesh("cpu", sizes)
        tensor = distributed(mesh, *[Replicate()] * len(sizes))
        tensor.add_(distributed(mesh, *[Replicate()] * len(sizes)))

    on_ranks(2, in_place_sum)
    searches.clear()
    on_ranks(2, program)
    assert searches["aten.add_.Tensor"] == 1


def test_a_plan_that_redistributes_is_not_remembered(on_ranks: OnRanks) -> None:
    plans: dict[Any, Any] = {}

    def program(rank: int) -> None:
        mesh = init_device_mesh("cpu", (2,))
        whole, part = distributed(mesh, Replicate()), distributed(mesh, Shard(0))
        schema = schema_of(aten.add_.Tensor, part, whole)
        work_out = PROPAGATOR.propagate_op_sharding_non_cached
        assert remembering(work_out, plans)(schema).needs_redistribute

    on_ranks(2, program)
    assert plans == {}


def test_plans_stay_few(
    on_ranks: OnRanks,
    monkeypatch: pytest.MonkeyPatch,
    nothing_remembered: dict[Any, Any],
) -> None:
    def program(rank: int) -> None:
        tensor = distributed(init_device_mesh("cpu", (1,)), Replicate())
        for dtype in (torch.float16, torch.bfloat16, torch.float64):
            tensor.to(dtype)

    monkeypatch.setattr(sharding_plans, "_MAX_PLANS", 2)
    on_ranks(1, program)
    assert len(nothing_remembered) == 1


def test_sizes_without_a_hash_go_to_torch(on_ranks: OnRanks) -> None:
    def program(rank: int) -> None:
        tensor = distributed(init(), Replicate())
        schema = schema_of(aten._to_copy.default, tensor, dtype=torch.float16)
        schema.args_schema = (*schema.args_schema, [])
        assert remembering(lambda given: given, {})(schema) is schema  # type: ignore[arg-type, return-value]

    def init() -> DeviceMesh:
        return init_device_mesh("cpu", (1,))

    on_ranks(1, program)


def test_torch_is_left_as_it_was() -> None:
    before = PROPAGATOR.propagate_op_sharding_non_cached
    with remembered_plans():
        assert PROPAGATOR.propagate_op_sharding_non_cached != before
    assert PROPAGATOR.propagate_op_sharding_non_cached == before
    SimulatedMachine(1).run(lambda rank: None)
    assert PROPAGATOR.propagate_op_sharding_non_cached == before
