"""Groups of ranks: every rank makes all of them, in one order, unless they say otherwise."""

from collections.abc import Callable
from typing import Any

import pytest
import torch
import torch.distributed as dist
from torch.distributed.device_mesh import init_device_mesh

from syncverify import simulate
from syncverify.judge.violation import Violation
from tests.syncverify.faces.simulation.faulty_programs import Fault

_HALVES = ([0, 1], [2, 3])


def _sums(rank: int, group: Any = None) -> None:
    dist.all_reduce(torch.ones(4, device="cuda") * rank, group=group)


def members_alone(rank: int) -> None:
    if rank < 2:
        _sums(rank, dist.new_group([0, 1]))  # fault
    else:
        _sums(rank, dist.new_group([2, 3]))  # fault


def another_order(rank: int) -> None:
    for half in _HALVES[:: -1 if rank == 1 else 1]:
        dist.new_group(half)  # fault


def another_order_of_ranks(rank: int) -> None:
    ranks = [1, 0] if rank == 1 else [0, 1]
    dist.new_group(ranks, sort_ranks=False)  # fault


def a_mesh_of_another_shape(rank: int) -> None:
    shape = (1, 4) if rank == 3 else (2, 2)
    init_device_mesh("cuda", shape)  # fault


def makes_one_less(rank: int) -> None:
    _sums(rank)
    if rank < 2:
        _sums(rank, dist.new_group([0, 1]))  # fault


WRONG = (
    members_alone,
    another_order,
    another_order_of_ranks,
    a_mesh_of_another_shape,
    makes_one_less,
)


def waits_for_the_wrong_name(rank: int) -> None:
    if rank == 0:
        dist.new_group([0])
    _sums(rank, dist.new_group([0, 1, 2, 3]))


def all_make_all(rank: int) -> None:
    groups = [dist.new_group(half) for half in _HALVES]
    _sums(rank, groups[rank // 2])


def members_alone_with_their_own_barrier(rank: int) -> None:
    half = _HALVES[rank // 2]
    _sums(rank, dist.new_group(half, use_local_synchronization=True))


def lists_in_another_order(rank: int) -> None:
    """torch sorts the ranks of a group."""
    _sums(rank, dist.new_group([3, 2, 1, 0] if rank else None))


def groups_of_torch(rank: int) -> None:
    mesh = init_device_mesh("cuda", (2, 2), mesh_dim_names=("dp", "tp"))
    mesh["dp", "tp"]._flatten("all")
    own, _ = dist.new_subgroups(2)
    enumerated, _ = dist.new_subgroups_by_enumeration([*_HALVES])
    for group in (mesh["dp"].get_group(), mesh["tp"].get_group(), own, enumerated):
        _sums(rank, group)


RIGHT = (
    all_make_all,
    members_alone_with_their_own_barrier,
    lists_in_another_order,
    groups_of_torch,
)


def only(simulation: Any) -> Violation:
    (found,) = simulation.violations
    return found.violation


@pytest.mark.parametrize("program", WRONG, ids=lambda program: program.__name__)
def test_groups_that_differ_are_a_violation(program: Callable[[int], None]) -> None:
    simulation = simulate(program, 4)
    found = only(simulation)
    assert found.identity == ("collectives_match_across_ranks", "groups_differ")
    lines = {line.number for line in found.evidence.lines}
    assert Fault(program, "").lines <= lines
    assert "use_local_synchronization=True" in str(simulation)


def test_both_lines_and_both_lists_are_named() -> None:
    report = str(simulate(members_alone, 4))
    first, second = sorted(Fault(members_alone, "").lines)
    assert "rank 0: new_group() of ranks [0, 1], at tests/" in report
    assert f"test_groups.py:{first} in members_alone" in report
    assert "rank 2: new_group() of ranks [2, 3], at tests/" in report
    assert f"test_groups.py:{second} in members_alone" in report


def test_a_wait_for_a_group_of_another_name_has_one_cause() -> None:
    assert only(simulate(waits_for_the_wrong_name, 4)).cause == "groups_differ"


@pytest.mark.parametrize("program", RIGHT, ids=lambda program: program.__name__)
def test_groups_that_are_equal_are_not_accused(program: Callable[[int], None]) -> None:
    simulation = simulate(program, 4)
    assert simulation.is_right, str(simulation)
