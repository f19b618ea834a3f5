"""Each backward counts as the last one, so sums are cleared before the next micro-batch."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager, nullcontext

import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.device_mesh import DeviceMesh
from torch.optim import Optimizer

from tests.syncverify.whole_step.reports.mixture import Mixture, loss

layouts = ["dp_outer=2,dp_inner=2"]
micro_batches = 2


class Sums:
    """Sums of gradients, over inner ranks at once and over outer ones after the last backward."""

    def __init__(self, mesh: DeviceMesh, *, is_repaired: bool) -> None:
        self.mesh = mesh
        self.is_repaired = is_repaired
        self.is_last = True
        self.sums = dict[nn.Parameter, torch.Tensor]()
        self.finished = dict[nn.Parameter, torch.Tensor]()

    @contextmanager
    def no_sync(self) -> Iterator[None]:
        """Mark the backward passes of a block as not the last; as reported, this does nothing."""
        self.is_last = not self.is_repaired
        yield
        self.is_last = True

    def add(self, parameter: nn.Parameter) -> None:
        """Add a gradient to its sum, and finish the sum if the gradient is the last."""
        assert parameter.grad is not None
        self._average(parameter.grad, "dp_inner")
        if parameter in self.finished:
            del self.sums[parameter], self.finished[parameter]
        known = self.sums.get(parameter, torch.zeros_like(parameter))
        self.sums[parameter] = known + parameter.grad
        parameter.grad = None
        if self.is_last:
            self.finished[parameter] = self.sums[parameter].clone()
            self._average(self.finished[parameter], "dp_outer")

    def give_to_optimizer(self) -> None:
        """Make finished sums the gradients of parameters."""
        for parameter, finished in self.finished.items():
            parameter.grad = finished

    def _average(self, gradient: torch.Tensor, axis: str) -> None:
        dist.all_reduce(gradient, group=self.mesh.get_group(axis))
        gradient /= self.mesh[axis].size()


def parallelize(model: Mixture, mesh: DeviceMesh, *, is_repaired: bool = False) -> None:
    """Sum gradients as soon as they are ready."""
    sums = Sums(mesh, is_repaired=is_repaired)
    model.sums = sums  # type: ignore[assignment]
    for each in model.parameters():
        each.register_post_accumulate_grad_hook(sums.add)


def step(
    model: Mixture, micro_batches: list[dict[str, torch.Tensor]], optimizer: Optimizer
) -> None:
    """Add up the micro-batches, and step."""
    for index, each in enumerate(micro_batches):
        is_last = index == len(micro_batches) - 1
        with nullcontext() if is_last else model.sums.no_sync():  # type: ignore[operator]
            (loss(model, each) / len(micro_batches)).backward()
    model.sums.give_to_optimizer()  # type: ignore[operator]
    optimizer.step()
    optimizer.zero_grad()
