"""A user-made autograd function whose backward is wrong is named; a right one is not blamed."""

import functools

import pytest
import torch
import torch.distributed as dist
from torch import nn
from torch.distributed import ProcessGroup
from torch.distributed.device_mesh import DeviceMesh
from torch.distributed.fsdp import fully_shard

from tests.syncverify.faces.whole_step.planted import steps

pytestmark = pytest.mark.long


class Products(torch.autograd.Function):
    """Products of a rank's queries with the keys of all ranks."""

    @staticmethod
    def forward(ctx, query, key, group, is_wrong):
        keys = [torch.empty_like(key) for _ in range(group.size())]
        dist.all_gather(keys, key, group=group)
        used = torch.cat([key] * len(keys) if is_wrong else keys)
        ctx.save_for_backward(query, used)
        ctx.group = group
        return query @ torch.cat(keys).T

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


def shared(model: Attention, mesh: DeviceMesh) -> None:
    model.group = mesh.get_group("dp")


def sharded(model: Attention, mesh: DeviceMesh) -> None:
    shared(model, mesh)
    fully_shard(model.first, mesh=mesh)
    fully_shard(model, mesh=mesh)


def plain_step(model, batch, optimizer):
    steps.mean_square(model, batch).backward()
    steps.update(optimizer)


def bent(model: Attention, _: DeviceMesh) -> None:
    """Make one gradient wrong in no known way."""
    model.first.bias.grad += torch.arange(3.0)


NAMED = "likely the backward of Products is wrong"


@pytest.mark.parametrize(
    ("is_wrong", "more", "words"),
    [
        (True, {}, NAMED),
        (True, {"loss": None}, NAMED),
        (True, {"parallelize": sharded, "step": plain_step}, NAMED),
        (False, {}, "1 micro-batch: right"),
        (False, {"step": plain_step}, "lacks the sum over `dp`"),
        (False, {"step": steps.with_gradients(bent)}, "no known mistake explains it"),
    ],
)
def test_a_function_is_named_for_a_wrong_backward_alone(
    more: dict[str, object], words: str, *, is_wrong: bool
) -> None:
    build = functools.partial(Attention, is_wrong=is_wrong)
    training = {"parallelize": shared, "step": steps.averaged_step, **more}
    result = steps.compare(build=build, **training)
    assert words in str(result)
    if words == NAMED:
        (mistake,) = result.mistakes
        assert [each.function for each in mistake.places] == ["forward", "backward"]
