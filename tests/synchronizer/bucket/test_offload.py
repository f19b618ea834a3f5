"""Buffers that give their memory back between steps, and get it again."""

from typing import Any

import pytest
import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.tensor import DTensor, Replicate

from syncverify.synchronizer import (
    GradientSynchronizer,
    OffloadedError,
    SynchronizerConfig,
)


def parameters() -> list[nn.Parameter]:
    """One that is summed over ranks, and one that is not."""
    mesh = init_device_mesh("cpu", (dist.get_world_size(),))
    shared = DTensor.from_local(torch.zeros(6, 7), mesh, [Replicate()], run_check=False)
    return [nn.Parameter(shared), nn.Parameter(torch.zeros(5))]


def local(tensor: torch.Tensor) -> torch.Tensor:
    return tensor.to_local() if isinstance(tensor, DTensor) else tensor


def backward(weights: list[nn.Parameter], factor: float = 1) -> None:
    for each in weights:
        weight = torch.arange(local(each).numel()).view_as(local(each)) * factor
        (local(each) * weight).sum().backward()


def storages(weights: list[nn.Parameter]) -> list[torch.UntypedStorage]:
    return [local(each.grad).untyped_storage() for each in weights]


def values(weights: list[nn.Parameter]) -> list[list[Any]]:
    return [local(each.grad).tolist() for each in weights]


@pytest.mark.parametrize("state", ["reduced", "idle"])
def test_memory_goes_and_comes_back_with_the_same_views(two_ranks, state: str) -> None:
    weights = parameters()
    with GradientSynchronizer([weights], 1, 1) as sums:
        if state == "reduced":
            backward(weights)
            sums.wait()
        gradients, held = [each.grad for each in weights], storages(weights)
        views = [view.local for b in sums._sequence.buckets for view in b.views]
        sizes, before = [each.nbytes() for each in held], values(weights)
        assert sizes == [256, 128]
        sums.offload()
        assert [each.nbytes() for each in held] == [0, 0]
        assert [each.grad for each in weights] == [None, None]
        sums.onload()
        assert [each.nbytes() for each in held] == sizes
        for gradient, each in zip(gradients, weights, strict=True):
            assert each.grad is gradient
        for view in views:
            assert view.untyped_storage().data_ptr() in {s.data_ptr() for s in held}
        assert values(weights) == before
        if state == "reduced":
            sums.scale_grads(2)
        sums.zero_grad()
        assert not any(local(gradient).any() for gradient in gradients)
        backward(weights, 3)
        sums.wait()
        assert values(weights)[1] == [0, 3, 6, 9, 12]


def test_training_goes_on_as_if_nothing_had_been_offloaded(ranks) -> None:
    def program(rank: int, *, offloads: bool) -> list[Any]:
        weights, found = parameters(), []
        config = SynchronizerConfig(mode="reduce_scatter")
        with GradientSynchronizer([weights], 1, 1, config=config) as sums:
            for step in range(2):
                backward(weights, step + 2**rank)
                sums.wait()
                if offloads:
                    sums.offload()
                    sums.onload()
                assert [each.grad is None for each in weights] == [True, False]
                found.append([g.values.tolist() for g in sums.owned_grads()])
                sums.zero_grad()
                if offloads:
                    sums.offload()
                    sums.onload()
        return found

    expected = ranks.run(2, lambda rank: program(rank, offloads=False))
    assert ranks.run(2, lambda rank: program(rank, offloads=True)) == expected


def test_a_backward_meanwhile_is_an_error_and_touches_no_memory_of_ours(
    two_ranks,
) -> None:
    weights = parameters()
    with GradientSynchronizer([weights], 1, 1) as sums:
        backward(weights)
        sums.wait()
        before = values(weights)
        sums.offload()
        with pytest.raises(OffloadedError):
            backward(weights[:1])
        sums.onload()
        assert values(weights) == before
        sums.zero_grad()  # the step failed
        backward(weights)
        sums.wait()
        assert values(weights) == before


def test_a_gradient_of_the_users_own_stays(two_ranks) -> None:
    a, b = weights = parameters()
    with GradientSynchronizer([weights], 1, 1) as sums:
        backward(weights)
        sums.wait()
        mine = b.grad = torch.ones(5)
        sums.offload()
        assert (a.grad, b.grad) == (None, mine)
        sums.onload()
        assert a.grad is not None
        assert b.grad is mine


def test_unused_gradients_stay_none(two_ranks) -> None:
    a, b = weights = parameters()
    config = SynchronizerConfig(unused="keep_none")
    with GradientSynchronizer([weights], 1, 1, config=config) as sums:
        backward([a])
        sums.wait()
        sums.offload()
        sums.onload()
        assert b.grad is None
        assert a.grad is not None


@pytest.mark.parametrize("call", ["offload", "onload"])
def test_one_that_fails_half_way_is_undone_by_onload(
    two_ranks, monkeypatch, call: str
) -> None:
    weights = parameters()
    with GradientSynchronizer([weights], 1, 1) as sums:
        backward(weights)
        sums.wait()
        before = values(weights)
        if call == "onload":
            sums.offload()
        first, last = sums._sequence.buckets
        monkeypatch.setattr(last, call, lambda: 1 // 0)
        with pytest.raises(ZeroDivisionError):
            getattr(sums, call)()
        monkeypatch.undo()
        assert (first._buffer.untyped_storage().nbytes() > 0) == (call == "onload")
        sums.onload()
        assert values(weights) == before
        sums.scale_grads(2)


@pytest.mark.parametrize("call", ["unbind", "reset"])
def test_whoever_gives_up_need_not_bring_the_memory_back(two_ranks, call: str) -> None:
    weights = parameters()
    config = SynchronizerConfig(check_finite=True, timings=True)
    with GradientSynchronizer([weights], 1, 1, config=config) as sums:
        sums.offload()
        getattr(sums, call)()
        assert all((each.grad is None) == (call == "unbind") for each in weights)
        sums.reset()
        backward(weights)
        sums.wait()
        assert values(weights)[1] == [0, 1, 2, 3, 4]
