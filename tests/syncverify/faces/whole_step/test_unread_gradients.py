"""ZeRO by hand: gradients that no optimizer of a rank needs are notes, those of owners are judged."""

import functools
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
import torch.distributed as dist
from torch import nn

from syncverify.faces.whole_step.outcome import Parity
from syncverify.judge.whole_step.causes import NotContinued, RanksDiffer
from syncverify.judge.whole_step.values import Quantity
from tests.syncverify.faces.whole_step.planted.steps import (
    Optimizer,
    Step,
    averaged_backward,
    compare,
    mean_square,
    scale_gradients,
    sgd,
    update,
    with_gradients,
)

pytestmark = pytest.mark.slow


def adam(parameters: list[nn.Parameter]) -> Optimizer:
    return torch.optim.Adam(parameters, lr=0.05, foreach=False)


def slices_of(model, batch, mesh, optimizer, *, factor=1.0):
    """Each rank updates half of the elements; the sum of all changes is the update."""
    averaged_backward(model, batch, mesh)
    rank, size = mesh["dp"].get_local_rank(), mesh["dp"].size()
    parameters = [*model.parameters()]
    for each in parameters:
        elements = torch.arange(each.numel()).view_as(each)
        each.grad = factor * each.grad * (elements * size // each.numel() == rank)
    before = [each.detach().clone() for each in parameters]
    update(optimizer)
    with torch.no_grad():
        for each, old in zip(parameters, before, strict=True):
            change = each - old
            dist.all_reduce(change, group=mesh.get_group("dp"))
            each.copy_(old + change)


def whole_parameters(
    model, batch, mesh, optimizer, *, others="none", reduces=True, sends=True
):
    """Each rank updates every second parameter, and sends it."""
    group = mesh.get_group("dp")
    mean_square(model, batch).backward()
    for index, each in enumerate(model.parameters()):
        owner = index % mesh["dp"].size()
        if reduces:
            dist.reduce(each.grad, group_dst=owner, group=group)
            each.grad /= mesh["dp"].size()
        if others == "none" and owner != group.rank():
            each.grad = None
    update(optimizer)
    if sends:
        for index, each in enumerate(model.parameters()):
            dist.broadcast(each.data, group_src=index % group.size(), group=group)


class FlatOptimizer(torch.optim.SGD):
    """SGD over the rank's slice of all parameters, with the collectives around it."""

    def __init__(self, parameters: list[nn.Parameter], divisor: int) -> None:
        self.parameters, self.divisor = parameters, divisor
        with torch.no_grad():
            flat = torch.cat([each.flatten() for each in parameters])
        self.part = nn.Parameter(
            flat.chunk(dist.get_world_size())[dist.get_rank()].clone()
        )
        super().__init__([self.part], lr=0.1, momentum=0.9)

    @torch.no_grad()
    def step(self) -> None:  # type: ignore[override]  # no closure
        gradients = [each.grad for each in self.parameters]
        flat = torch.cat([each.flatten() for each in gradients if each is not None])
        self.part.grad = torch.empty_like(self.part)
        dist.reduce_scatter_single(self.part.grad, flat)
        self.part.grad /= self.divisor
        super().step()
        dist.all_gather_single(flat, self.part.detach())
        sizes = [each.numel() for each in self.parameters]
        for each, part in zip(self.parameters, flat.split(sizes), strict=True):
            each.copy_(part.view_as(each))
            each.grad = None


def flat_sgd(parameters: list[nn.Parameter], *, divides: bool = True) -> Optimizer:
    return FlatOptimizer(parameters, dist.get_world_size() if divides else 1)


def plain_step(model: nn.Module, batch: torch.Tensor, optimizer: Optimizer) -> None:
    mean_square(model, batch).backward()
    optimizer.step()


def owned(parameters: list[nn.Parameter]) -> Optimizer:
    """Make an optimizer of every second parameter."""
    rank, size = dist.get_rank(), dist.get_world_size()
    mine = [p for i, p in enumerate(parameters) if i % size == rank]
    return torch.optim.Adam(mine, lr=0.05)


def file_of(path: str, rank: int) -> Path:
    return Path(path) / f"{rank}.pt"


def save_each(model: nn.Module, optimizer: Optimizer, path: str) -> None:
    held = (
        model.state_dict(),
        optimizer.state_dict(),
        getattr(optimizer, "part", None),
    )
    torch.save(held, file_of(path, dist.get_rank()))
    dist.barrier()


def load_file(model, optimizer, path, *, rank=None, offset=0):
    """Load the file of a rank; None for the rank's own one, or one after it."""
    ours = (dist.get_rank() + offset) % dist.get_world_size()
    held = torch.load(file_of(path, ours if rank is None else rank), weights_only=False)
    parameters, state, part = held
    model.load_state_dict(parameters)
    optimizer.load_state_dict(state)
    if part is not None:
        optimizer.part.data.copy_(part.data)


def load_without_state(model: nn.Module, optimizer: Any, path: str) -> None:
    load_file(model, optimizer, path)
    optimizer.state.clear()


SCALES_ONE_RANK = with_gradients(functools.partial(scale_gradients, factors=[1, 2]))


def play(step: Step, optimizer: Callable[..., Any] = sgd, **more: Any) -> Parity:
    return compare(step=step, optimizer=optimizer, **more)


@pytest.mark.parametrize(
    ("step", "optimizer"),
    [
        (slices_of, adam),
        (whole_parameters, sgd),
        (functools.partial(whole_parameters, others="local"), adam),
        (plain_step, flat_sgd),
    ],
)
def test_gradients_that_no_parameter_depends_on_are_a_note(
    step: Step, optimizer: Callable[..., Any]
) -> None:
    result = play(step, optimizer)
    assert result.is_right, str(result)
    assert "and no parameter depends on these" in str(result)
    assert result.to_json()["layouts"][0]["unread"]


@pytest.mark.long
@pytest.mark.parametrize(
    ("step", "optimizer", "quantity"),
    [
        (functools.partial(slices_of, factor=2.0), adam, Quantity.GRADIENT),
        (functools.partial(whole_parameters, reduces=False), adam, Quantity.GRADIENT),
        (functools.partial(whole_parameters, sends=False), sgd, Quantity.PARAMETER),
        (plain_step, functools.partial(flat_sgd, divides=False), Quantity.PARAMETER),
        # Adam hides it in the parameters.
        (SCALES_ONE_RANK, adam, Quantity.GRADIENT),
    ],
)
def test_a_wrong_part_of_an_owner_is_a_mistake(
    step: Step, optimizer: Callable[..., Any], quantity: Quantity
) -> None:
    result = play(step, optimizer)
    assert quantity in [each.finding.quantity for each in result.mistakes], str(result)


resumed = functools.partial(play, steps=4, resume=True, save=save_each)


@pytest.mark.long
@pytest.mark.parametrize(
    ("step", "optimizer"),
    [
        (functools.partial(whole_parameters, others="local"), adam),
        (whole_parameters, owned),
        (plain_step, flat_sgd),
    ],
)
def test_a_state_that_a_rank_does_not_own_need_not_be_loaded(
    step: Step, optimizer: Callable[..., Any]
) -> None:
    result = resumed(step, optimizer, load=load_file)
    assert result.is_right, str(result)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("step", "optimizer", "load"),
    [
        (whole_parameters, sgd, functools.partial(load_file, rank=0)),
        (whole_parameters, adam, functools.partial(load_file, offset=1)),
        (whole_parameters, owned, load_without_state),
    ],
)
def test_a_state_of_its_owner_has_to_be_loaded(
    step: Step, optimizer: Callable[..., Any], load: Callable[..., None]
) -> None:
    result = resumed(step, optimizer, load=load)
    kinds = {each.finding.quantity for each in result.mistakes}
    assert kinds == {Quantity.LOADED_STATE}, str(result)


@pytest.mark.slow
def test_a_lost_state_of_a_flat_slice_shows_in_the_steps_after() -> None:
    result = resumed(plain_step, flat_sgd, load=load_without_state)
    (mistake,) = result.mistakes
    assert mistake.finding.cause == NotContinued(is_all_compared=False)
    assert "state of tensors that are no parameters was not compared" in str(result)


def other_owners(model, batch, mesh, optimizer, step_index):
    """Exchange the owners after two steps, and leave their states where they are."""
    averaged_backward(model, batch, mesh)
    group, parameters = mesh.get_group("dp"), [*model.parameters()]
    owners = [(index + step_index // 2) % 2 for index in range(len(parameters))]
    for each, owner in zip(parameters, owners, strict=True):
        each.grad = each.grad if owner == group.rank() else None
    update(optimizer)
    for each, owner in zip(parameters, owners, strict=True):
        dist.broadcast(each.data, group_src=owner, group=group)


@pytest.mark.long
def test_unread_gradients_beside_a_mistake_are_no_mistakes() -> None:
    result = play(other_owners, adam, steps=4)
    (mistake,) = result.mistakes
    assert isinstance(mistake.finding.cause, RanksDiffer), str(result)


def step_of_one_owner(model, batch, mesh, optimizer, *, sends=True):
    """Let the first rank make the step, and send its parameters."""
    averaged_backward(model, batch, mesh)
    if mesh["dp"].get_local_rank() == 0:
        optimizer.step()
    if sends:
        for each in model.parameters():
            dist.broadcast(each.data, 0, group=mesh.get_group("dp"))
    optimizer.zero_grad()


def test_one_rank_may_update_all_parameters() -> None:
    result = compare(step=step_of_one_owner, layouts=["dp=4"])
    assert result.is_right, str(result)


def test_one_rank_that_updates_all_and_sends_nothing_is_found() -> None:
    step = functools.partial(step_of_one_owner, sends=False)
    assert compare(step=step, layouts=["dp=4"]).mistakes
