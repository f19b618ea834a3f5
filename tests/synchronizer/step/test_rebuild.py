"""Buckets are cut anew once, in the order that the lowest of their ranks observed."""

import weakref
from collections.abc import Callable
from datetime import timedelta
from functools import partial
from typing import Any

import pytest
import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.device_mesh import DeviceMesh, init_device_mesh
from torch.distributed.tensor import Replicate
from torch.utils.checkpoint import checkpoint

from syncverify import synchronizer
from syncverify.synchronizer import (
    GradientSynchronizer,
    PlanMismatchError,
    SynchronizerConfig,
)
from syncverify.synchronizer.bucket.bucket import BucketState
from tests import programs
from tests.programs import accumulate, value

KIB_MB = 2**-10
PAIR = 128  # elements of float32, of which two fill a bucket of 1 KiB

parameter = partial(programs.parameter, numel=PAIR)


def replicated(mesh: DeviceMesh, names: str) -> dict[str, nn.Parameter]:
    return {name: parameter(mesh, *[Replicate()] * mesh.ndim) for name in names}


def make(group: dict[str, nn.Parameter], **options: Any) -> GradientSynchronizer:
    names = {each: name for name, each in group.items()}
    config = SynchronizerConfig(**options)
    groups = [list(group.values())]
    return GradientSynchronizer(groups, KIB_MB, 1, parameter_names=names, config=config)


def step(
    sums: GradientSynchronizer, group: dict[str, nn.Parameter], order: str
) -> None:
    for name in order:
        accumulate(group[name], 1)
    sums.wait()
    sums.zero_grad()


def buckets(sums: GradientSynchronizer) -> list[str]:
    return ["".join(bucket.parameters) for bucket in sums.explain().buckets]


@pytest.fixture
def alone(two_ranks: None) -> Callable[[str], dict[str, nn.Parameter]]:
    """Make parameters on one rank of two, without communication."""
    return lambda names: replicated(init_device_mesh("cpu", (2,)), names)


def test_buckets_follow_the_order_of_the_first_step(alone) -> None:
    group = alone("abcd")
    with make(group) as sums:
        assert buckets(sums) == ["dc", "ba"]
        step(sums, group, "adcb")
        assert buckets(sums) == ["ad", "cb"]
        step(sums, group, "dcba")  # once is enough
        assert buckets(sums) == ["ad", "cb"]
        rebuilt = "; rebuilt in the order in which gradients were ready"
        assert sums.explain().is_rebuilt
        assert str(sums.explain()).endswith(rebuilt)


def test_buckets_that_were_in_order_stay(alone) -> None:
    group = alone("abcd")
    with make(group) as sums:
        kept = [each.grad for each in group.values()]
        step(sums, group, "dcba")
        grads = [each.grad for each in group.values()]
        assert [*map(id, grads)] == [*map(id, kept)]
        assert not sums.explain().is_rebuilt


def test_a_rebuild_can_be_turned_off(alone) -> None:
    group = alone("abcd")
    with make(group, rebuild=False) as sums:
        step(sums, group, "adcb")
        assert buckets(sums) == ["dc", "ba"]


@pytest.mark.parametrize(("unused", "names"), [("error", "dcba"), ("zeros", "d")])
def test_a_step_that_was_not_reduced_teaches_nothing(alone, unused, names) -> None:
    group = alone("abcd")
    with make(group, unused=unused) as sums:
        accumulate(group["a"], 1)
        sums.zero_grad()
        step(sums, group, names)
        assert not sums.explain().is_rebuilt


def test_the_last_gradient_of_a_parameter_counts(alone) -> None:
    group = alone("abcd")
    with make(group) as sums:
        with sums.no_sync():
            for name in "dcba":
                accumulate(group[name], 1)
        step(sums, group, "adcb")
        assert buckets(sums) == ["ad", "cb"]


def test_a_new_bind_starts_with_the_first_plan(alone) -> None:
    group = alone("abcd")
    sums = make(group)
    for again in (sums.reset, lambda: (sums.unbind(), sums.bind())):
        sums.reset()
        step(sums, group, "adcb")
        assert buckets(sums) == ["ad", "cb"]
        again()
        assert buckets(sums) == ["dc", "ba"]
        assert not sums.explain().is_rebuilt
    sums.unbind()
    assert buckets(sums) == ["dc", "ba"]


def test_how_many_gradients_a_backward_brings_is_not_forgotten(alone) -> None:
    group = alone("abc")

    def backward() -> None:
        """Bring `a` two gradients; the other one may be reduced meanwhile."""
        twice = [
            checkpoint(
                lambda x: (x * group["a"].to_local()).sum(), x, use_reentrant=True
            )
            for x in torch.ones(2, PAIR, requires_grad=True).unbind()
        ]
        (
            sum(twice) + group["b"].to_local().sum() + group["c"].to_local().sum()
        ).backward()

    with make(group) as sums:
        backward()
        sums.wait()
        assert buckets(sums) == ["cb", "a"]
        sums._rebuild._order._own_positions = [0, 1, 2]
        sums.zero_grad()
        assert buckets(sums) == ["ab", "c"]
        views = {v.plan.name: v for b in sums._sequence.buckets for v in b.views}
        learned = {name: view.expected_arrivals for name, view in views.items()}
        assert learned == {"a": 2, "b": 1, "c": 1}
        backward()
        sums.wait()
        assert [value(each) for each in group.values()] == [2, 1, 1]


def test_a_gradient_that_somebody_kept_is_zero_and_his_own(alone) -> None:
    group = alone("abcd")
    with make(group) as sums:
        for each in group.values():
            accumulate(each, 3)
        kept = group["a"].grad
        sums.wait()
        sums.zero_grad()
        assert sums.explain().is_rebuilt
        accumulate(group["a"], 5)
        assert value(group["a"]) == 5
        assert torch.equal(kept.to_local(), torch.zeros(PAIR))


def test_old_buffers_are_given_back_before_new_ones_are_allocated(
    alone, monkeypatch
) -> None:
    group = alone("abcd")
    with make(group) as sums:
        old = [weakref.ref(b._buffer) for b in sums._sequence.buckets]
        old += [weakref.ref(v.local) for b in sums._sequence.buckets for v in b.views]
        alive: list[Any] = []
        zeros = torch.zeros

        def observed(*args: Any, **kwargs: Any) -> torch.Tensor:
            alive.extend(each() for each in old if each() is not None)
            return zeros(*args, **kwargs)

        for name in "adcb":
            accumulate(group[name], 1)
        sums.wait()
        monkeypatch.setattr(synchronizer.bucket.bucket.torch, "zeros", observed)
        sums.zero_grad()
        monkeypatch.undo()
        assert sums.explain().is_rebuilt
        assert alive == []


def test_without_memory_for_new_buffers_nothing_is_left(alone, monkeypatch) -> None:
    group = alone("abcd")
    sums = make(group)
    sums.bind()
    for name in "adcb":
        accumulate(group[name], 1)
    sums.wait()

    def fail(*_: Any, **__: Any) -> None:
        raise MemoryError

    monkeypatch.setattr(synchronizer.bucket.bucket.torch, "zeros", fail)
    with pytest.raises(MemoryError):
        sums.zero_grad()
    monkeypatch.undo()
    assert repr(sums).startswith("GradientSynchronizer(unbound")
    assert all(each.grad is None for each in group.values())
    assert not any(each._post_accumulate_grad_hooks for each in group.values())
    with sums:
        step(sums, group, "adcb")


def test_the_lowest_rank_decides(ranks) -> None:
    def program(rank: int) -> tuple[list[str], list[float]]:
        group = replicated(init_device_mesh("cpu", (2,)), "abcd")
        with make(group) as sums:
            step(sums, group, ("acbd", "dbca")[rank])
            for name in ("abcd", "bdca")[rank]:
                accumulate(group[name], 10**rank)
            sums.wait()
            return buckets(sums), [value(each) for each in group.values()]

    assert ranks.run(2, program) == [(["ac", "bd"], [11] * 4)] * 2


def test_no_process_group_is_made_for_a_rebuild(ranks, monkeypatch) -> None:
    made = []
    create = synchronizer.ranks.process_groups._create_group

    def observed(members: tuple[int, ...]) -> dist.ProcessGroup:
        made.append(members)
        return create(members)

    monkeypatch.setattr(synchronizer.ranks.process_groups, "_create_group", observed)

    def program(rank: int) -> None:
        mesh = init_device_mesh("cpu", (2, 2))
        group = {
            name: parameter(mesh, Replicate(), Replicate(), numel=2**17)
            for name in "abcd"
        }
        with make(group) as sums:
            step(sums, group, "abcd")
            assert sums.explain().is_rebuilt
            step(sums, group, "abcd")

    ranks.run(4, program)
    assert made == [(0, 1, 2, 3)] * 4


def test_a_rank_that_stops_after_wait_holds_nobody_up(ranks) -> None:
    def program(rank: int) -> bool:
        group = replicated(init_device_mesh("cpu", (2,)), "abcd")
        with make(group) as sums:
            for name in "abcd":
                accumulate(group[name], 1)
            sums.wait()
            if rank:
                sums.zero_grad()
            return sums.explain().is_rebuilt

    assert ranks.run(2, program) == [False, True]


def test_a_rank_that_never_completed_the_step_is_named(ranks) -> None:
    def program(rank: int) -> list[str]:
        group = replicated(init_device_mesh("cpu", (2,)), "abcd")
        with make(group, rebuild=True) as sums:
            for name in "abcd":
                accumulate(group[name], 1)
            if rank == 0:
                sums._rebuild.note_complete = lambda _: None
            sums.wait()
            if rank == 0:
                return []
            store = dist.distributed_c10d._get_default_store()
            store.set_timeout(timedelta(seconds=0.01))
            with pytest.raises(PlanMismatchError) as caught:
                sums.zero_grad()
            assert {b.state for b in sums._sequence.buckets} == {BucketState.REDUCED}
            assert value(group["a"]) == 2, "nothing has changed"
            return str(caught.value).splitlines()

    found = ranks.run(2, program)[1]
    assert found[:2] == [
        "rank 0 did not call wait()",
        "  expected: wait() on every rank that shares buckets",
    ]
    assert found[3:] == [
        "  where:    rank 1 of 2, bind() number 1",
        f"  hint: {PlanMismatchError.hint}",
    ]
