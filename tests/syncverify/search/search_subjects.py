"""Subjects for tests of the search: one that is right, and variants of it."""

from typing import Any

import torch.distributed as dist
from torch import nn


class Naive:
    """Sums DTensors over the axes on which they are replicated, one by one."""

    def __init__(self, groups: list[list[nn.Parameter]], mb: float, count: int) -> None:
        self.parameters = [parameter for group in groups for parameter in group]

    def bind(self) -> None: ...

    def wait(self) -> None:
        for parameter in self.parameters:
            if parameter.grad is not None and hasattr(parameter, "device_mesh"):
                self.reduce(parameter)

    def reduce(self, parameter: Any) -> None:
        for axis, placement in enumerate(parameter.placements):
            if placement.is_replicate():
                group = parameter.device_mesh.get_group(axis)
                dist.all_reduce(parameter.grad.to_local(), group=group)

    def zero_grad(self) -> None:
        for parameter in self.parameters:
            parameter.grad = None

    def unbind(self) -> None: ...


class Doubles(Naive):
    """Two defects at once: every gradient is doubled, and one hook stays."""

    def wait(self) -> None:
        super().wait()
        for parameter in self.parameters:
            if parameter.grad is not None:
                parameter.grad.mul_(2)

    def unbind(self) -> None:
        trainable = next(p for p in self.parameters if p.requires_grad)
        trainable.register_post_accumulate_grad_hook(lambda p: None)


class SkipsSecond(Naive):
    """Forgets to reduce the second parameter."""

    def reduce(self, parameter: Any) -> None:
        if not any(parameter is second for second in self.parameters[1:2]):
            super().reduce(parameter)


class SkipsThird(Naive):
    """Forgets to reduce the third parameter."""

    def reduce(self, parameter: Any) -> None:
        if not any(parameter is third for third in self.parameters[2:3]):
            super().reduce(parameter)
