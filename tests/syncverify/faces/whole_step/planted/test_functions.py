"""A user-made autograd function whose backward is wrong is named; a right one is not blamed."""

import functools
from typing import Any

import pytest
import torch
import torch.distributed as dist
from torch import nn
from torch.autograd import Function
from torch.distributed import ProcessGroup
from torch.distributed.device_mesh import DeviceMesh
from torch.distributed.fsdp import fully_shard

from syncverify.judge.whole_step.causes import LacksSum, Unexplained
from tests.syncverify.faces.whole_step.planted.steps import (
    averaged_step,
    compare,
    mean_square,
    update,
    with_gradients,
)

pytestmark = pytest.mark.long


class Products(Function):
    """Products of a rank's queries with the keys of all ranks."""

    @staticmethod
    def forward(ctx, query, key, group, is_wrong):
        parts = [torch.empty_like(key) for _ in range(group.size())]
        dist.all_gather(parts, key, group=group)
        keys = torch.cat(parts)
        ctx.save_for_backward(
            query, torch.cat([key] * len(parts)) if is_wrong else keys
        )
        ctx.group = group
        return query @ keys.T

    @staticmethod
    def backward(ctx, grad):
        query, keys = ctx.saved_tensors  # the wrong one has its own keys in each turn
        of_keys = grad.T @ query
        dist.all_reduce(of_keys, group=ctx.group)
        own = of_keys.chunk(ctx.group.size())[ctx.group.rank()]
        return grad @ keys, own, None, None


class Attention(nn.Module):
    group: ProcessGroup | None = None

    def __init__(self, *, is_wrong: bool) -> None:
        super().__init__()
        self.first, self.query, self.key = (nn.Linear(3, 3) for _ in range(3))
        self.last, self.is_wrong = nn.Linear(1, 1), is_wrong

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = self.first(x).tanh()
        query, key = self.query(x), self.key(x)
        products = query @ key.T
        if self.group is not None:
            products = Products.apply(query, key, self.group, self.is_wrong)
        return self.last(products.square().mean(-1, keepdim=True))


def shared(model: Attention, mesh: DeviceMesh, *, is_sharded: bool = False) -> None:
    model.group = mesh.get_group("dp")
    if is_sharded:
        fully_shard(model.first, mesh=mesh)
        fully_shard(model, mesh=mesh)


def plain_step(model, batch, optimizer):
    mean_square(model, batch).backward()
    update(optimizer)


def bent(model: Attention, _: DeviceMesh) -> None:
    """Make one gradient wrong in no known way."""
    model.first.bias.grad += torch.arange(3.0)


WRONG, RIGHT = (
    {"build": functools.partial(Attention, is_wrong=e)} for e in (True, False)
)
SHARDED = {
    "parallelize": functools.partial(shared, is_sharded=True),
    "step": plain_step,
}


@pytest.mark.parametrize("more", [{}, SHARDED, {"loss": None}])
def test_a_function_with_a_wrong_backward_is_named(more: dict[str, Any]) -> None:
    training = {"parallelize": shared, "step": averaged_step, **WRONG, **more}
    (mistake,) = (result := compare(**training)).mistakes
    cause = mistake.finding.cause
    assert isinstance(cause, Unexplained)
    assert [name for name, _ in cause.functions] == ["Products"]
    assert [each.function for each in mistake.places] == ["forward", "backward"]
    assert "likely the backward of Products is wrong" in str(result)


@pytest.mark.parametrize(
    ("step", "cause"),
    [
        (averaged_step, None),
        (plain_step, LacksSum(frozenset({"dp"}), 0.5)),
        (with_gradients(bent), Unexplained()),
    ],
)
def test_a_right_function_is_not_blamed(step: object, cause: object) -> None:
    result = compare(parallelize=shared, step=step, **RIGHT)
    assert [e.finding.cause for e in result.mistakes] == ([cause] if cause else [])
