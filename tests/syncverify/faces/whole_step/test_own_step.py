"""An own step without a loss: layouts are compared with each other."""

import functools
from typing import Any

import pytest
import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.device_mesh import DeviceMesh

from syncverify.faces.whole_step.outcome import Parity
from syncverify.judge.whole_step.causes import LacksSum, Scaled
from syncverify.judge.whole_step.values import Quantity
from tests.syncverify.faces.whole_step.planted.expert_parallel import squares_of
from tests.syncverify.faces.whole_step.planted.steps import average, compare, update


def batch() -> torch.Tensor:
    return torch.randn(16, 3)


def step(model, micro_batches, mesh, optimizer, *, wrong=""):
    axes = dict(zip(mesh.mesh_dim_names or (), mesh.shape, strict=True))
    number = 1 if wrong == "parts" else len(micro_batches)
    losses = list[float]()
    for each in micro_batches:
        out = model(each)
        loss = 3 * (out.square() * out + out).mean() / number
        loss.backward()
        losses.append(float(loss.detach()))
    sizes = [*axes.values()]
    over = ["dp"] if wrong == "axis" and min(sizes) > 1 else [*axes]
    average(model.parameters(), mesh, *over)
    if wrong == "one" and max(sizes) == 1:
        for each in model.parameters():
            each.grad *= 2
    update(optimizer)
    return {"loss of this rank": losses[-1]}


def play(wrong: str = "", **more: Any) -> Parity:
    layouts = ["dp=2,cp=1", "dp=1,cp=2", "dp=2,cp=2"]
    training = {"batch": batch, "loss": None, "layouts": layouts, "split": ["dp", "cp"]}
    return compare(step=functools.partial(step, wrong=wrong), **(training | more))


@pytest.mark.long
def test_right_layouts_agree() -> None:
    result = play(micro_batches=(1, 2), layouts=["dp=2,cp=1", "dp=1,cp=2"])
    assert result.is_right, str(result)
    assert "not judged: a mistake that is in all layouts alike" in str(result)
    assert "it is always" not in str(result)
    assert "loss of this rank, which the step returns: ranks of dp=2,cp=1 may" in str(
        result
    )


@pytest.mark.long
def test_the_odd_one_out_is_named() -> None:
    result = play("axis")
    (mistake,) = result.mistakes
    assert mistake.finding.cause == LacksSum(frozenset({"cp"}), 0.5)
    text = str(result)
    assert (
        "dp=2,cp=2 differs from the 3 others: dp=1,cp=1; dp=2,cp=1; dp=1,cp=2" in text
    )


@pytest.mark.long
def test_numbers_of_micro_batches_that_disagree_are_named() -> None:
    result = play("parts", micro_batches=(1, 4), layouts=["dp=2,cp=1"])
    (mistake,) = result.mistakes
    assert mistake.finding.cause == Scaled(4.0, is_number_of_parts=True)
    assert "multiplied by 4, the number of micro-batches" in str(result)
    assert "from the 2 others: dp=1,cp=1 with 1 micro-batch" in str(result)


@pytest.mark.long
def test_one_number_of_micro_batches_is_not_judged() -> None:
    result = play("parts", micro_batches=4, layouts=["dp=2,cp=1"])
    assert result.is_right
    assert "it is always 4. Say micro_batches=(1, 4)" in str(result)


@pytest.mark.long
def test_one_rank_is_the_odd_one_out() -> None:
    result = play("one", layouts=["dp=2,cp=1", "dp=1,cp=2"])
    (mistake,) = result.mistakes
    assert mistake.finding.quantity is Quantity.GRADIENT
    assert mistake.finding.cause == Scaled(2.0)
    assert "dp=1,cp=1 differs from the 2 others: dp=2,cp=1; dp=1,cp=2" in str(result)
    assert result.to_json()["beside"]["layout"] == {"dp": 2, "cp": 1}


def staged(model, batch, mesh, optimizer, *, norm_over="pp"):
    """Send activations to the second rank of `pp`; a step on one rank has none."""
    group = mesh.get_group("pp")
    shape = (len(batch), 4)
    if group.rank() == 0:
        hidden = torch.tanh(model[0](batch))
        dist.send(hidden.detach(), group=group, group_dst=1)
        gradient = torch.empty(shape, dtype=batch.dtype)
        dist.recv(gradient, group=group, group_src=1)
        hidden.backward(gradient)
    else:
        received = torch.empty(shape, dtype=batch.dtype).requires_grad_()
        with torch.no_grad():
            dist.recv(received, group=group, group_src=0)
        model[2](received).square().mean().backward()
        dist.send(received.grad, group=group, group_dst=0)
    average(model.parameters(), mesh, "dp")
    squares = squares_of(model)
    dist.all_reduce(squares, group=mesh.get_group(norm_over))
    nn.utils.clip_grads_with_norm_(model.parameters(), 0.01, squares.sqrt())
    update(optimizer)


def stage(model: nn.Sequential, mesh: DeviceMesh) -> None:
    del model[2 if mesh["pp"].get_local_rank() == 0 else 0]
    if mesh["pp"].get_local_rank():
        model.insert(0, nn.Tanh())


def stages(**more: Any) -> Parity:
    layouts = ["dp=1,pp=2", "dp=2,pp=2"]
    training = {"parallelize": stage, "batch": batch, "loss": None, "clip": 0.01}
    own = functools.partial(staged, **more)
    return compare(step=own, layouts=layouts, **training)


@pytest.mark.slow
def test_a_step_that_needs_two_ranks_is_compared_with_other_layouts() -> None:
    result = stages()
    assert result.is_right, str(result)
    assert [each.num_values > 0 for each in result.plays] == 4 * [True]
    assert "not judged: one rank: the step on one rank does not end" in str(result)


@pytest.mark.slow
def test_a_norm_over_another_axis_of_a_step_that_needs_two_ranks_is_named() -> None:
    result = stages(norm_over="dp")
    assert not result.is_right
    assert {e.finding.quantity for e in result.mistakes} == {Quantity.NORM}
    assert "copies differ over `pp`" in str(result)
    assert "odd one" not in str(result), "no layout is right"
