"""Numbers of tokens of experts, and of experts, that differ between ranks."""

from __future__ import annotations

import functools

import pytest
import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.device_mesh import DeviceMesh

from syncverify.whole_step.causes import RanksDiffer
from syncverify.whole_step.parity import Parity
from syncverify.whole_step.values import Quantity
from tests.syncverify.whole_step.planted import expert_parallel
from tests.syncverify.whole_step.planted.expert_parallel import Experts
from tests.syncverify.whole_step.planted.steps import Optimizer, compare, update

CLIP = 0.5
Batch = dict[str, torch.Tensor]


def tokens_for_one_expert() -> Batch:
    """Send all tokens to expert 0: the expert of the last rank has none."""
    expert = torch.zeros(8, 2, dtype=torch.long)
    return {"x": torch.randn(8, 2, 3), "expert": expert}


def expert_step(
    model: Experts, batch: Batch, mesh: DeviceMesh, optimizer: Optimizer
) -> None:
    expert_parallel.backward(model, batch, mesh)
    update(optimizer)


@pytest.mark.slow
def test_an_expert_without_tokens_is_silent() -> None:
    training = expert_parallel.TRAINING | {"batch": tokens_for_one_expert}
    result = compare(**training, layouts=["dp=2,ep=2"], step=expert_step)
    assert result.is_right, str(result)


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


def rows_for_three_ranks() -> Batch:
    expert = torch.arange(12).reshape(6, 2) % 2
    return {"x": torch.randn(6, 2, 3), "expert": expert}


def clipped_step(
    model: Experts,
    batch: Batch,
    mesh: DeviceMesh,
    optimizer: Optimizer,
    *,
    wrong: str,
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


def play_idle_rank(wrong: str) -> Parity:
    """Play two experts on three ranks: the last rank owns none."""
    return compare(
        loss=expert_parallel.loss,
        split=["dp", "ep"],
        build=functools.partial(Experts, 2),
        parallelize=keep_own,
        batch=rows_for_three_ranks,
        own=own_expert,
        layouts=["dp=1,ep=3"],
        step=functools.partial(clipped_step, wrong=wrong),
        clip=CLIP,
    )


@pytest.mark.slow
def test_a_rank_that_owns_no_expert_is_silent() -> None:
    result = play_idle_rank("")
    assert result.is_right, str(result)


@pytest.mark.slow
def test_a_rank_without_experts_that_leaves_out_a_reduction_is_named() -> None:
    result = play_idle_rank("leaves out")
    assert result.num_violations == 1
    assert not result.mistakes
    assert "rank 2" in str(result.plays[0].simulation)


@pytest.mark.slow
def test_a_rank_without_experts_that_clips_by_its_own_norm_is_named() -> None:
    (mistake,) = play_idle_rank("own norm").mistakes
    found = mistake.finding
    assert found.quantity is Quantity.NORM
    assert found.cause == RanksDiffer((2,), frozenset({"ep"}))
    assert Quantity.PARAMETER in found.follows
