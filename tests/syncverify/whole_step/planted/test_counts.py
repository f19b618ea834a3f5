"""Numbers of micro-batches, and of experts, that differ between ranks."""

from __future__ import annotations

import functools

import pytest
import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.device_mesh import DeviceMesh
from torch.nn.parallel import DistributedDataParallel

from syncverify import parity
from syncverify.whole_step.causes import RanksDiffer
from syncverify.whole_step.parity import Parity
from syncverify.whole_step.values import Quantity
from tests.syncverify.whole_step.planted import expert_parallel
from tests.syncverify.whole_step.planted.expert_parallel import Experts
from tests.syncverify.whole_step.planted.steps import Optimizer, sgd, update

CLIP = 0.5


def build() -> nn.Module:
    return nn.Linear(3, 3)


def batch() -> torch.Tensor:
    return torch.randn(8, 3)


def loss(model: nn.Module, batch: torch.Tensor) -> torch.Tensor:
    out: torch.Tensor = model(batch)
    return out.square().mean()


def ddp(model: nn.Module, mesh: DeviceMesh) -> nn.Module:
    return DistributedDataParallel(model)


def same_number(
    model: nn.Module,
    micro_batches: list[torch.Tensor],
    mesh: DeviceMesh,
    optimizer: Optimizer,
) -> None:
    for each in micro_batches:
        (loss(model, each) / len(micro_batches)).backward()
    update(optimizer)


def one_less_on_the_last_rank(
    model: nn.Module,
    micro_batches: list[torch.Tensor],
    mesh: DeviceMesh,
    optimizer: Optimizer,
) -> None:
    number = len(micro_batches) - mesh["dp"].get_local_rank()
    same_number(model, micro_batches[:number], mesh, optimizer)


def _play(step: object) -> Parity:
    return parity(
        build,
        ddp,
        batch,
        loss,
        layouts=["dp=2"],
        micro_batches=[2],
        step=step,
        optimizer=sgd,
        device="cpu",
    )


@pytest.mark.slow
def test_numbers_of_micro_batches_that_differ_are_named() -> None:
    result = _play(one_less_on_the_last_rank)
    assert not result.is_right
    assert result.num_violations
    text = str(result)
    assert "layout dp=2" in text
    assert "rank 1" in text


@pytest.mark.slow
def test_equal_numbers_of_micro_batches_are_silent() -> None:
    result = _play(same_number)
    assert result.is_right, str(result)


def tokens_for_one_expert() -> dict[str, torch.Tensor]:
    """Send all tokens to expert 0: the expert of the last rank has none."""
    expert = torch.zeros(8, 2, dtype=torch.long)
    return {"x": torch.randn(8, 2, 3), "expert": expert}


def expert_step(
    model: Experts,
    batch: dict[str, torch.Tensor],
    mesh: DeviceMesh,
    optimizer: Optimizer,
) -> None:
    expert_parallel.backward(model, batch, mesh)
    update(optimizer)


def step_of_used_experts(
    model: Experts,
    batch: dict[str, torch.Tensor],
    mesh: DeviceMesh,
    optimizer: Optimizer,
) -> None:
    """Leave out the reduction of experts that got no token on this rank of `dp`."""
    expert_parallel.backward(model, batch, mesh, ())
    assert model.experts.grad is not None
    if bool(model.experts.grad.any()):
        dist.all_reduce(model.experts.grad, group=mesh.get_group("dp"))
    update(optimizer)


def keep_own(model: Experts, mesh: DeviceMesh) -> None:
    """Give expert 0 to rank 0, expert 1 to rank 1, and nothing to rank 2."""
    group = model.group = mesh.get_group("ep")
    rank = group.rank()
    own = model.experts.detach()[rank : rank + 1].clone()
    model.experts = nn.Parameter(own)


def own_expert(
    name: str, whole: torch.Tensor, coordinate: dict[str, int]
) -> torch.Tensor:
    """Return the experts of a rank."""
    if not name.startswith("experts"):
        return whole
    return whole[coordinate["ep"] : coordinate["ep"] + 1]


def two_experts() -> nn.Module:
    return Experts(2)


def rows_for_three_ranks() -> dict[str, torch.Tensor]:
    expert = torch.arange(12).reshape(6, 2) % 2
    return {"x": torch.randn(6, 2, 3), "expert": expert}


def _play_experts(step: object, layout: str = "dp=1,ep=2", **more: object) -> Parity:
    values: dict[str, object] = {
        "build": Experts,
        "parallelize": expert_parallel.split,
        "batch": tokens_for_one_expert,
        "loss": expert_parallel.loss,
        "split": ["dp", "ep"],
        "own": expert_parallel.OWN,
        "optimizer": sgd,
        "device": "cpu",
        **more,
    }
    return parity(layouts=[layout], step=step, **values)  # type: ignore[arg-type]


@pytest.mark.slow
def test_an_expert_without_tokens_is_silent() -> None:
    result = _play_experts(expert_step, "dp=2,ep=2")
    assert result.is_right, str(result)


def tokens_of_some_rows() -> dict[str, torch.Tensor]:
    """Make rows; the second half sends nothing to the last experts."""
    expert = torch.arange(16).reshape(8, 2) % 4
    expert[4:] = 0
    return {"x": torch.randn(8, 2, 3), "expert": expert}


@pytest.mark.slow
def test_a_reduction_that_an_expert_without_tokens_leaves_out_is_named() -> None:
    result = _play_experts(step_of_used_experts, "dp=2,ep=2", batch=tokens_of_some_rows)
    assert not result.is_right
    assert result.num_violations
    assert "all_reduce" in str(result)


def clipped_step(
    model: Experts,
    batch: dict[str, torch.Tensor],
    mesh: DeviceMesh,
    optimizer: Optimizer,
    *,
    wrong: str = "",
) -> None:
    """Clip by one norm; a rank without experts may leave out its part of that."""
    expert_parallel.backward(model, batch, mesh)
    squares = torch.zeros((), dtype=torch.float64)
    if len(model.experts):
        assert model.experts.grad is not None
        squares = model.experts.grad.square().sum()
    is_idle = not len(model.experts)
    if not (is_idle and wrong == "leaves out"):
        dist.all_reduce(squares, group=mesh.get_group("ep"))
    if is_idle and wrong == "own norm":
        squares = torch.zeros((), dtype=torch.float64)
    norm = (squares + expert_parallel.squares_of(model.layer)).sqrt()
    nn.utils.clip_grads_with_norm_(model.parameters(), CLIP, norm)
    update(optimizer)


def _play_idle_rank(step: object) -> Parity:
    """Play two experts on three ranks: the last rank owns none."""
    return _play_experts(
        step,
        "dp=1,ep=3",
        build=two_experts,
        parallelize=keep_own,
        batch=rows_for_three_ranks,
        own=own_expert,
        clip=CLIP,
    )


@pytest.mark.slow
def test_a_rank_that_owns_no_expert_is_silent() -> None:
    result = _play_idle_rank(clipped_step)
    assert result.is_right, str(result)


@pytest.mark.slow
def test_a_rank_without_experts_that_leaves_out_a_reduction_is_named() -> None:
    result = _play_idle_rank(functools.partial(clipped_step, wrong="leaves out"))
    assert result.num_violations == 1
    assert not result.mistakes
    assert "rank 2" in str(result.plays[0].simulation)


@pytest.mark.slow
def test_a_rank_without_experts_that_clips_by_its_own_norm_is_named() -> None:
    result = _play_idle_rank(functools.partial(clipped_step, wrong="own norm"))
    (mistake,) = result.mistakes
    found = mistake.finding
    assert found.quantity is Quantity.NORM
    assert found.cause == RanksDiffer((2,), frozenset({"ep"}))
    assert Quantity.PARAMETER in found.follows
