"""`each_bucket_reduced_once_per_step` on correct programs that come close to the line."""

from typing import Any

import pytest
import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.tensor import DTensor

from syncverify import verify


class Plain:
    """Reduces in wait(), one parameter after the other."""

    def __init__(
        self, groups: list[list[nn.Parameter]], bucket_size_mb: float, count: int
    ) -> None:
        self.parameters = [p for group in groups for p in group if p.requires_grad]

    def bind(self) -> None: ...

    def unbind(self) -> None: ...

    def zero_grad(self) -> None:
        for parameter in self.parameters:
            parameter.grad = None

    def wait(self) -> None:
        for parameter in self.parameters:
            if isinstance(parameter.grad, DTensor):
                self.reduce(parameter.grad)

    def reduce(self, gradient: DTensor) -> None:
        for axis, placement in enumerate(gradient.placements):
            if placement.is_replicate():
                group = gradient.device_mesh.get_group(axis)
                self.sum_over(gradient.to_local(), group)

    def sum_over(self, local: torch.Tensor, group: dist.ProcessGroup) -> None:
        dist.all_reduce(local, group=group)


class GathersAndSums(Plain):
    """Exchanges by all-gather, and sums the parts that arrived."""

    def sum_over(self, local: torch.Tensor, group: dist.ProcessGroup) -> None:
        parts = [torch.empty_like(local) for _ in range(group.size())]
        dist.all_gather(parts, local, group=group)
        local.copy_(torch.stack(parts).sum(dim=0))


class StagesInOneBuffer(Plain):
    """Passes every gradient through the same memory."""

    def bind(self) -> None:
        self.stage = torch.empty(4096, dtype=torch.float32)

    def sum_over(self, local: torch.Tensor, group: dist.ProcessGroup) -> None:
        staged = self.stage[: local.numel()]
        staged.copy_(local.reshape(-1))
        dist.all_reduce(staged, group=group)
        local.copy_(staged.reshape(local.shape))


@pytest.mark.nightly
@pytest.mark.parametrize("subject", [Plain, GathersAndSums, StagesInOneBuffer])
def test_correct_program_has_no_violation(subject: type[Any]) -> None:
    assert verify(subject, examples=60, seed=0).violations == ()
