"""A layer of experts with a gate, and the training that reports change."""

from collections.abc import Callable, Iterable
from functools import partial
from typing import Any, ClassVar

import torch
import torch.distributed as dist
from torch import nn
from torch.distributed import ProcessGroup
from torch.distributed.device_mesh import DeviceMesh
from torch.nn import functional

from tests.syncverify.faces.whole_step.reports.by_hand import (
    gathers,
    scatters,
    sums,
    sums_gradient,
)

Batch = dict[str, torch.Tensor]
Way = Callable[[torch.Tensor], torch.Tensor]


def _same(value: torch.Tensor) -> torch.Tensor:
    return value


class Mixture(nn.Module):
    """A layer, a gate, and experts of which each row takes a weighted sum.

    Rows and scores enter this rank's experts by `rows_in` and `scores_in`, and rows leave them by
    `rows_out`.
    """

    def __init__(self, width: int, num_experts: int) -> None:
        super().__init__()
        self.below = nn.Linear(width, width)
        self.gate = nn.Linear(width, num_experts, bias=False)
        self.experts = nn.Parameter(torch.randn(num_experts, width, width))
        self.rows_in: Way = _same
        self.scores_in: Way = _same
        self.rows_out: Way = _same
        self.first = 0

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = torch.tanh(self.below(x))
        scores = self.scores_in(self.gate(x).softmax(-1))
        own = scores[:, self.first : self.first + len(self.experts)]
        made = torch.einsum("re,rw,ewv->rv", own, self.rows_in(x), self.experts)
        return self.rows_out(made)

    def keep_own(self, group: ProcessGroup) -> None:
        own = self.experts.detach().chunk(group.size())[group.rank()]
        self.experts = nn.Parameter(own.clone())
        self.first = group.rank() * len(own)

    def dense(self) -> list[nn.Parameter]:
        return [*self.below.parameters(), *self.gate.parameters()]


def split_experts(model: Mixture, group: ProcessGroup) -> None:
    """Split the experts over ranks that have the same rows."""
    model.keep_own(group)
    model.rows_in = model.scores_in = partial(sums_gradient, group=group)
    model.rows_out = partial(sums, group=group)


def send_rows(model: Mixture, group: ProcessGroup) -> None:
    """Split the experts over ranks with different rows, and send all rows to all experts."""
    model.keep_own(group)
    model.rows_in = model.scores_in = partial(gathers, group=group)
    model.rows_out = partial(scatters, group=group)


def average(parameters: Iterable[nn.Parameter], group: ProcessGroup) -> None:
    for each in parameters:
        dist.all_reduce(each.grad, group=group)
        each.grad /= group.size()


def squares(parameters: Iterable[nn.Parameter]) -> torch.Tensor:
    listed = [each.grad.square().sum() for each in parameters if each.grad is not None]
    return torch.stack(listed).sum()


class Reported:
    """A training of a report; the first line of the docstring of a subclass is its mistake.

    `parity` takes the attributes that have the names of its parameters.
    """

    device = "cpu"
    layouts: ClassVar = ["dp=2"]

    def __init__(self, *, is_repaired: bool) -> None:
        self.is_repaired = is_repaired

    def build(self, width: int = 4, experts: int = 4) -> nn.Module:
        return Mixture(width, experts)

    def parallelize(self, model: Any, mesh: DeviceMesh) -> None:
        """Leave the model whole on each rank."""

    def batch(self, width: int = 4) -> Batch:
        return {"x": torch.randn(8, width), "y": torch.randn(8, width)}

    def loss(self, model: Any, batch: Batch) -> torch.Tensor:
        return functional.mse_loss(model(batch["x"]), batch["y"])


class Stepped(Reported):
    """A training with a step of its own."""

    def step(self, model, batch, mesh, optimizer):
        self.loss(model, batch).backward()
        returned = self.reduce(model, mesh)
        optimizer.step()
        optimizer.zero_grad()
        return returned

    def reduce(self, model: Any, mesh: DeviceMesh) -> Any:
        average(model.parameters(), mesh.get_group("dp"))
