"""The programs of docs/adopting.md run on two ranks, and average as the page says."""

import re
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.tensor import Replicate, Shard, distribute_tensor

from syncverify.synchronizer import GradientSynchronizer, SynchronizerConfig

PAGE = Path(__file__).parents[2] / "docs" / "adopting.md"
DDP, _, _, PACKS, MESH = re.findall(
    r"```python\n(.+?)```", PAGE.read_text("utf-8"), re.DOTALL
)
BATCHES = torch.arange(24.0, dtype=torch.float64).reshape(2, 4, 3).flip(2) / 7


def linear(seed: int) -> nn.Linear:
    # Ranks are threads here, which share torch's generator.
    generator = torch.Generator().manual_seed(seed)
    model = nn.Linear(3, 2, dtype=torch.float64)
    for parameter in model.parameters():
        nn.init.normal_(parameter, generator=generator)
    return model


def names(model: nn.Module, batches: Any) -> dict[str, Any]:
    return {
        "GradientSynchronizer": GradientSynchronizer,
        "SynchronizerConfig": SynchronizerConfig, "Replicate": Replicate, "Shard": Shard,
        "distribute_tensor": distribute_tensor, "init_device_mesh": init_device_mesh,
        "dist": dist, "nn": nn, "model": model, "batches": batches,
        "num_micro_batches": 2,
        "optimizer": torch.optim.SGD(model.parameters(), lr=0.1),
    }  # fmt: skip


def trained_alone(*, clips: bool = True) -> torch.Tensor:
    """Train on the batches of both ranks at once, which have equal sizes."""
    model = linear(seed=0)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    for inputs in BATCHES:
        model(inputs).square().mean().backward()
        if clips:
            torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        optimizer.zero_grad()
    return model.weight.detach()


def test_the_program_in_the_place_of_ddp(ranks) -> None:
    def program(rank: int) -> torch.Tensor:
        model = linear(seed=rank)
        mine = [inputs.chunk(2)[rank] for inputs in BATCHES]
        exec(DDP, names(model, mine))  # the project's own page
        return model.weight.detach()

    for weight in ranks.run(2, program):
        torch.testing.assert_close(weight, trained_alone(), rtol=1e-12, atol=0)


def test_the_program_of_steps_of_several_lengths(ranks) -> None:
    def program(rank: int) -> torch.Tensor:
        model = linear(seed=0)
        mine = [inputs.chunk(2)[rank] for inputs in BATCHES]
        packs = [[mine[0]], [*mine[1].chunk(2)]]
        config = SynchronizerConfig(
            process_group=dist.group.WORLD, process_group_reduction="avg"
        )
        used = {**names(model, mine), "packs": packs, "config": config}
        exec(PACKS, used)  # the project's own page
        used["synchronizer"].unbind()
        return model.weight.detach()

    for weight in ranks.run(2, program):
        torch.testing.assert_close(
            weight, trained_alone(clips=False), rtol=1e-12, atol=0
        )


def test_the_program_on_a_mesh(ranks) -> None:
    def program(rank: int) -> torch.Tensor:
        model = linear(seed=0)
        used = names(model, [BATCHES[0]])
        marked = MESH.replace(
            "        synchronizer.zero_grad()",
            "        found.append(model.weight.grad.full_tensor().clone())\n"
            "        synchronizer.zero_grad()",
        )
        used["found"] = []
        exec(marked, used)  # the project's own page
        return used["found"][0]

    alone = linear(seed=0)
    alone(BATCHES[0]).square().mean().backward()
    for gradient in ranks.run(2, program):
        torch.testing.assert_close(gradient, alone.weight.grad, rtol=1e-12, atol=0)
