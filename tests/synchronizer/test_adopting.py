"""The programs of docs/adopting.md run on two ranks, and average as the page says."""

import re
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import pytest
import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.tensor import Replicate, Shard, distribute_tensor

from syncverify.synchronizer import GradientSynchronizer, SynchronizerConfig

PAGE = Path(__file__).parents[2] / "docs" / "adopting.md"
DDP, UNEVEN, COPIES, PACKS, MESH = re.findall(
    r"```python\n(.+?)```", PAGE.read_text("utf-8"), re.DOTALL
)
BATCHES = torch.arange(24.0, dtype=torch.float64).reshape(2, 4, 3).flip(2) / 7


def linear(seed: int = 0) -> nn.Linear:
    # Ranks are threads here, which share torch's generator.
    generator = torch.Generator().manual_seed(seed)
    model = nn.Linear(3, 2, dtype=torch.float64)
    for parameter in model.parameters():
        nn.init.normal_(parameter, generator=generator)
    return model


def part_of(rank: int) -> list[torch.Tensor]:
    return [inputs.chunk(2)[rank] for inputs in BATCHES]


def averaging(**options: Any) -> SynchronizerConfig:
    return SynchronizerConfig(
        process_group=dist.group.WORLD, process_group_reduction="avg", **options
    )


def names(model: nn.Module, batches: Any) -> dict[str, Any]:
    return {
        "GradientSynchronizer": GradientSynchronizer,
        "SynchronizerConfig": SynchronizerConfig, "Replicate": Replicate, "Shard": Shard,
        "distribute_tensor": distribute_tensor, "init_device_mesh": init_device_mesh,
        "dist": dist, "nn": nn, "torch": torch, "model": model, "batches": batches,
        "num_micro_batches": 2,
        "optimizer": torch.optim.SGD(model.parameters(), lr=0.1),
    }  # fmt: skip


def trained_alone(
    batches: Iterable[torch.Tensor] = BATCHES, *, clips: bool = False
) -> torch.Tensor:
    """Train on the batches of both ranks at once, which have equal sizes."""
    model = linear()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    for inputs in batches:
        model(inputs).square().mean().backward()
        if clips:
            torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        optimizer.zero_grad()
    return model.weight.detach()


def assert_close(found: list[torch.Tensor], expected: torch.Tensor) -> None:
    for each in found:
        torch.testing.assert_close(each, expected, rtol=1e-12, atol=0)


def test_the_program_in_the_place_of_ddp(ranks) -> None:
    def program(rank: int) -> torch.Tensor:
        model = linear(seed=rank)
        exec(DDP, names(model, part_of(rank)))  # the project's own page
        return model.weight.detach()

    assert_close(ranks.run(2, program), trained_alone(clips=True))


def test_a_rank_without_data_takes_part(ranks) -> None:
    def program(rank: int) -> torch.Tensor:
        model, config = linear(), averaging(unused="zeros")
        used = names(model, iter(part_of(rank)[: 2 - rank]))
        with GradientSynchronizer.from_module(model, 25, 1, config=config) as bound:
            exec(UNEVEN, used | {"synchronizer": bound})  # the project's own page
        return model.weight.detach()

    expected = trained_alone([BATCHES[0], part_of(0)[1]])
    assert_close(ranks.run(2, program), expected)


def test_adam_steps_on_copies_in_float32(ranks) -> None:
    def program(rank: int) -> torch.Tensor:
        model = linear().bfloat16()
        for each in model.parameters():
            each.grad_dtype = torch.float32
        used = names(model, [inputs.bfloat16() for inputs in part_of(rank)])
        with GradientSynchronizer.from_module(
            model, 25, 1, config=averaging()
        ) as bound:
            exec(COPIES, used | {"synchronizer": bound})  # the project's own page
        return model.weight.detach()

    one, other = ranks.run(2, program)
    assert torch.equal(one, other)
    assert not torch.equal(one, linear().weight.bfloat16())


def test_the_program_of_steps_of_several_lengths(ranks) -> None:
    def program(rank: int) -> torch.Tensor:
        model, (first, second) = linear(), part_of(rank)
        used = {"packs": [[first], [*second.chunk(2)]], "config": averaging()}
        used |= names(model, [])
        exec(PACKS, used)  # the project's own page
        used["synchronizer"].unbind()
        return model.weight.detach()

    assert_close(ranks.run(2, program), trained_alone())


def test_the_program_on_a_mesh(ranks) -> None:
    def program(_: int) -> torch.Tensor:
        model, found = linear(), []
        marked = MESH.replace(
            "        synchronizer.zero_grad()",
            "        found.append(model.weight.grad.full_tensor().clone())\n"
            "        synchronizer.zero_grad()",
        )
        exec(marked, names(model, [BATCHES[0]]) | {"found": found})  # our own page
        return found[0]

    alone = linear()
    alone(BATCHES[0]).square().mean().backward()
    assert_close(ranks.run(2, program), alone.weight.grad)


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore")  # of torch, in its import
def test_zero_redundancy_optimizer_steps(ranks) -> None:
    from torch.distributed.optim import ZeroRedundancyOptimizer

    def program(rank: int) -> torch.Tensor:
        model, config = linear(), averaging()
        optimizer = ZeroRedundancyOptimizer(model.parameters(), torch.optim.SGD, lr=0.1)
        with GradientSynchronizer.from_module(model, 25, 1, config=config) as bound:
            for inputs in part_of(rank):
                model(inputs).square().mean().backward()
                bound.wait()
                optimizer.step()
                bound.zero_grad()
        return model.weight.detach()

    assert_close(ranks.run(2, program), trained_alone())
