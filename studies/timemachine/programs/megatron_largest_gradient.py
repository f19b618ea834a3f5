"""Megatron's norm of the largest gradient, where some ranks have no gradient to count."""

from random import Random
from typing import Any

import torch
import torch.distributed as dist
from megatron.core.optimizer.clip_grads import get_grad_norm_fp32


def draw(random: Random) -> dict[str, Any]:
    """Draw the number of gradients of each rank."""
    ranks = random.randint(1, 4)
    return {
        "ranks": ranks,
        "seed": random.randrange(1000),
        "numbers": [random.randint(0, 2) for _ in range(ranks)],
    }


def program(rank: int, *, seed: int, numbers: list[int]) -> None:
    """Compare the norm with the largest of all ranks' numbers."""
    made = torch.Generator().manual_seed(seed)
    gradients = [[torch.randn(3, generator=made) for _ in range(n)] for n in numbers]
    largest = max(
        (g.abs().max().item() for rank in gradients for g in rank), default=0.0
    )
    mine = [each.to("cuda") for each in gradients[rank]]
    norm = get_grad_norm_fp32(mine, float("inf"), dist.group.WORLD)
    torch.testing.assert_close(float(norm), largest)
