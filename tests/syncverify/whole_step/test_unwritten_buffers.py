"""A model on the meta device, whose buffers no rank sends after `to_empty()`."""

from __future__ import annotations

import pytest
import torch
from torch import nn
from torch.distributed.device_mesh import DeviceMesh
from typing_extensions import override

from syncverify import parity

NAME = "memory_is_written_before_it_is_read"


class Scaled(nn.Module):
    """A layer with a buffer of constants."""

    def __init__(self) -> None:
        super().__init__()
        self.layer = nn.Linear(4, 4)
        self.register_buffer("scale", torch.linspace(1, 2, 4))

    @override
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        out: torch.Tensor = self.layer(x) * self.scale
        return out


def on_ranks(model: nn.Module, *, sends_buffers: bool) -> nn.Module:
    """Return a model without memory at first, which gets its values again."""
    state = {name: each.detach().clone() for name, each in model.state_dict().items()}
    if not sends_buffers:
        del state["scale"]
    model.to("meta").to_empty(device="cpu")
    model.load_state_dict(state, strict=False)
    return model


@pytest.mark.slow
@pytest.mark.parametrize("sends_buffers", [True, False])
def test_buffers_that_nobody_sends_are_named(*, sends_buffers: bool) -> None:
    def parallelize(model: nn.Module, mesh: DeviceMesh) -> nn.Module:
        made = on_ranks(model, sends_buffers=sends_buffers)
        return nn.parallel.DistributedDataParallel(made, process_group=mesh.get_group())

    outcome = parity(
        Scaled,
        parallelize,
        batch=lambda: torch.randn(4, 4),
        loss=lambda model, batch: model(batch).square().mean(),
        layouts={"dp": 2},
        device="cpu",
    )
    (play,) = outcome.plays
    found = [each.violation for each in play.simulation.violations]
    assert [each.property for each in found] == ([] if sends_buffers else [NAME])
    assert not outcome.mistakes
    assert sends_buffers or "in on_ranks and not written" in found[0].summary
