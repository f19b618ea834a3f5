"""Experts: the group of their gradients, their part of the norm, and ranks without experts."""

import functools
from collections.abc import Callable
from typing import Any

import pytest
import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.device_mesh import DeviceMesh

from syncverify.faces.whole_step.outcome import Parity
from syncverify.judge.whole_step.causes import (
    Joined,
    NormMistake,
    NormOf,
    NormOfNorms,
    OtherCoefficient,
    RanksDiffer,
    ReducedOver,
)
from syncverify.judge.whole_step.values import Quantity
from tests.syncverify.faces.whole_step.planted import expert_parallel
from tests.syncverify.faces.whole_step.planted.expert_parallel import (
    Experts,
    right_norm,
)
from tests.syncverify.faces.whole_step.planted.steps import compare, update

pytestmark = pytest.mark.slow

Norm = Callable[[Experts, DeviceMesh], torch.Tensor]
LIMIT = 0.5


def step(model, batch, mesh, optimizer, *, axes=("dp",), norm=right_norm, is_seen=True):
    expert_parallel.backward(model, batch, mesh, axes)
    total = norm(model, mesh)
    if is_seen:
        nn.utils.clip_grads_with_norm_(model.parameters(), LIMIT, total)
    else:
        expert_parallel.scale(model, total, LIMIT)
    update(optimizer)


def play(wrong: object, layout: str = "dp=2,ep=2") -> Parity:
    return compare(**expert_parallel.TRAINING, layouts=[layout], step=wrong, clip=LIMIT)


@pytest.mark.long
def test_right_experts_in_clipping_of_the_users_own_are_silent() -> None:
    result = play(functools.partial(step, is_seen=False), "dp=1,ep=4")
    assert result.is_right, str(result)
    assert result.plays[0].worst_error < 1e-13


def mean_norm(model: Experts, mesh: DeviceMesh) -> torch.Tensor:
    norm = expert_parallel.norm_of_own(model, mesh)
    dist.all_reduce(norm, group=mesh.get_group("ep"))
    return norm / mesh["ep"].size()


@pytest.mark.long
@pytest.mark.parametrize("axes", [("ep",), ("dp", "ep")])
def test_experts_that_are_reduced_over_the_wrong_group_are_named(
    axes: tuple[str, ...],
) -> None:
    result = play(functools.partial(step, axes=axes))
    (mistake,) = result.mistakes
    assert [each.name for each in mistake.finding.differences] == ["experts"]
    cause = mistake.finding.cause
    assert isinstance(cause, ReducedOver), cause
    assert "ep" in cause.axes
    assert cause.right <= {"dp"}
    assert "added over" in str(result)
    assert "`ep`" in str(result)


@pytest.mark.long
@pytest.mark.parametrize(
    ("norm", "cause", "words"),
    [
        (
            expert_parallel.norm_of_own,
            NormOf(("experts",), frozenset({"ep"}), is_missing=True),
            "does not add the squares of experts over `ep`",
        ),
        (
            mean_norm,
            NormOfNorms(Joined.MEAN, frozenset({"ep"})),
            "is the mean of the ranks' own norms over `ep`",
        ),
    ],
)
def test_a_wrong_norm_in_clipping_of_the_users_own_is_named(
    norm: Norm, cause: NormMistake, words: str
) -> None:
    result = play(functools.partial(step, norm=norm, is_seen=False))
    (mistake,) = result.mistakes
    assert mistake.finding.quantity is Quantity.STEPPED
    assert isinstance(mistake.finding.cause, OtherCoefficient)
    assert mistake.finding.cause.norm == cause
    assert words in str(result)


def keep_own(model: Experts, mesh: DeviceMesh) -> None:
    """Give expert 0 to rank 0, expert 1 to rank 1, and nothing to rank 2."""
    group = model.group = mesh.get_group("ep")
    rank = group.rank()
    own = model.experts.detach()[rank : rank + 1].clone()
    model.experts = nn.Parameter(own)


def own_expert(
    name: str, whole: torch.Tensor, coordinate: dict[str, int]
) -> torch.Tensor:
    if not name.startswith("experts"):
        return whole
    return whole[coordinate["ep"] : coordinate["ep"] + 1]


def rows_for_three_ranks() -> Any:
    expert = torch.arange(12).reshape(6, 2) % 2
    return {"x": torch.randn(6, 2, 3), "expert": expert}


def clipped_step(model, batch, mesh, optimizer, *, wrong):
    """Clip by one norm; a rank without experts may leave out its part of that."""
    expert_parallel.backward(model, batch, mesh)
    squares = torch.zeros((), dtype=torch.float64)
    if len(model.experts):
        squares = model.experts.grad.square().sum()
    is_idle = not len(model.experts)
    if not (is_idle and wrong == "leaves out"):
        dist.all_reduce(squares, group=mesh.get_group("ep"))
    if is_idle and wrong == "own norm":
        squares = torch.zeros((), dtype=torch.float64)
    norm = (squares + expert_parallel.squares_of(model.layer)).sqrt()
    nn.utils.clip_grads_with_norm_(model.parameters(), LIMIT, norm)
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
        clip=LIMIT,
    )


def test_a_rank_that_owns_no_expert_is_silent() -> None:
    result = play_idle_rank("")
    assert result.is_right, str(result)


def test_a_rank_without_experts_that_leaves_out_a_reduction_is_named() -> None:
    result = play_idle_rank("leaves out")
    assert result.num_violations == 1
    assert not result.mistakes
    assert "rank 2" in str(result.plays[0].simulation)


@pytest.mark.long
def test_a_rank_without_experts_that_clips_by_its_own_norm_is_named() -> None:
    (mistake,) = play_idle_rank("own norm").mistakes
    found = mistake.finding
    assert found.quantity is Quantity.NORM
    assert found.cause == RanksDiffer((2,), frozenset({"ep"}))
    assert Quantity.PARAMETER in found.follows
