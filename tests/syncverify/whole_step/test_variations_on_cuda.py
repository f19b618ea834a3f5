"""Variations of a training that torch takes for one on GPUs."""

from __future__ import annotations

import pytest
import torch
import torch.distributed as dist
from torch import nn
from torch.amp.grad_scaler import GradScaler
from torch.distributed.device_mesh import DeviceMesh
from torch.distributed.fsdp import fully_shard

from syncverify import parity

pytestmark = pytest.mark.filterwarnings("ignore:FSDP2-wrapped module")
Batch = dict[str, torch.Tensor]


def build() -> nn.Module:
    return nn.Sequential(nn.Linear(4, 6), nn.Tanh(), nn.Linear(6, 2)).cuda()


def batch() -> Batch:
    """Make 8 rows."""
    return {
        "x": torch.randn(8, 3, 4, device="cuda"),
        "mask": torch.ones(8, 3, device="cuda"),
    }


def loss(
    model: nn.Module, batch: Batch, mesh: DeviceMesh | None = None
) -> torch.Tensor:
    """Return a loss whose average over ranks, which FSDP2 takes, is the mean over all tokens."""
    weights = batch["mask"]
    total = (model(batch["x"]).square().sum(-1) * weights).sum()
    count = weights.sum()
    if mesh is None:
        return total / count
    dist.all_reduce(count, group=mesh.get_group("dp"))
    return total * mesh["dp"].size() / count


def shard(model: nn.Module, mesh: DeviceMesh) -> None:
    fully_shard(model, mesh=mesh["dp"])


def scaler() -> GradScaler:
    return GradScaler("cuda", init_scale=64.0)


@pytest.mark.long
def test_a_right_training_is_silent_with_all_variations() -> None:
    result = parity(
        build,
        shard,
        batch,
        loss,
        layouts=["dp=2"],
        weights="mask",
        scaler=scaler,
        clip=0.1,
    )
    assert result.is_right, str(result)
    words = [each.variation and each.variation.word for each in result.plays]
    assert words == [
        None,
        "unequal-tokens",
        "padding",
        "overflow",
        "nan",
        "local-overflow",
    ]
    assert all(each.is_tried for each in result.plays)
