"""Reports about gradients of layers that no rank sums."""

from typing import ClassVar

import torch
import torch.distributed as dist
from torch import nn
from torch.distributed import ProcessGroup
from torch.distributed.device_mesh import DeviceMesh

from tests.syncverify.faces.whole_step.reports.by_hand import (
    gathers,
    own_part,
    splits,
    summed,
    sums,
)
from tests.syncverify.faces.whole_step.reports.mixture import Reported, Stepped


class _Pair(nn.Module):
    """A frozen layer up and down that ranks split, and a LoRA pair beside the first one."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.up = nn.Parameter(torch.randn(width, width), requires_grad=False)
        self.down = nn.Parameter(torch.randn(width, width), requires_grad=False)
        self.up_a = nn.Parameter(torch.randn(2, width))
        self.up_b = nn.Parameter(torch.zeros(width, 2))
        self.group: ProcessGroup | None = None

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        rows = x if self.group is None else splits(x, self.group)
        low = rows @ self.up_a.T
        if self.group is not None:
            low = gathers(low, self.group)
        made = (x @ self.up.T + low @ self.up_b.T).tanh() @ self.down.T
        return made if self.group is None else sums(made, self.group)


class McoreBridge173(Stepped):
    """The factor of a LoRA pair that all `tp` ranks have is not summed over their rows."""

    layouts: ClassVar = ["tp=2"]
    own: ClassVar = {"up": {"tp": 0}, "up_b": {"tp": 0}, "down": {"tp": 1}}

    def build(self, width: int = 4) -> nn.Module:  # type: ignore[override]
        return _Pair(width)

    def parallelize(self, model: _Pair, mesh: DeviceMesh) -> None:
        group = model.group = mesh.get_group("tp")
        for name, dim in (("up", 0), ("up_b", 0), ("down", 1)):
            whole = getattr(model, name)
            part = own_part(whole, group, dim)
            setattr(model, name, nn.Parameter(part, requires_grad=whole.requires_grad))

    def reduce(self, model: _Pair, mesh: DeviceMesh) -> None:
        """Sum the factor `up_a`, which has a gradient from the second step on."""
        if self.is_repaired:
            model.up_a.grad = summed(model.up_a.grad, mesh.get_group("tp"))


class _Block(nn.Module):
    """A norm on a rank's own rows, then a layer up and down that ranks split."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.norm = nn.LayerNorm(width)
        self.up = nn.Linear(width, 4 * width)
        self.down = nn.Linear(4 * width, width, bias=False)
        self.group: ProcessGroup | None = None

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        if self.group is None:
            return self.down(self.up(self.norm(x)).relu())
        x = gathers(self.norm(splits(x, self.group)), self.group)
        return sums(self.down(self.up(x).relu()), self.group)


class NemoRL3716(Stepped):
    """The weights of norms that see a part of the rows are not summed over `tp`."""

    layouts: ClassVar = ["tp=2"]
    own: ClassVar = {"up.*": {"tp": 0}, "down.weight": {"tp": 1}}

    def build(self, width: int = 4) -> nn.Module:  # type: ignore[override]
        return _Block(width)

    def parallelize(self, model: _Block, mesh: DeviceMesh) -> None:
        group = model.group = mesh.get_group("tp")
        for layer, dim in ((model.up, 0), (model.down, 1)):
            layer.weight = nn.Parameter(own_part(layer.weight, group, dim))
        model.up.bias = nn.Parameter(own_part(model.up.bias, group))

    def reduce(self, model: _Block, mesh: DeviceMesh) -> None:
        """Leave out the part that finishes gradients, as reported."""
        for each in model.norm.parameters() if self.is_repaired else ():
            each.grad = summed(each.grad, mesh.get_group("tp"))


class FastVideo1666(Reported):
    """A layer is added after the hooks that reduce gradients, and is never reduced."""

    def build(self, width: int = 4) -> nn.Module:  # type: ignore[override]
        return nn.Sequential(
            nn.Linear(width, width), nn.Tanh(), nn.Linear(width, width)
        )

    def parallelize(self, model: nn.Sequential, mesh: DeviceMesh) -> None:
        group = mesh.get_group("dp")

        def reduce(parameter: nn.Parameter) -> None:
            dist.all_reduce(parameter.grad, group=group)
            parameter.grad /= group.size()

        for each in (model if self.is_repaired else model[:-1]).parameters():
            each.register_post_accumulate_grad_hook(reduce)
