"""Megatron's sum over tensor-parallel ranks, of activations that may be transposed."""

from __future__ import annotations

from random import Random
from typing import Any

import torch
import torch.distributed as dist
from megatron.core.tensor_parallel.mappings import (
    reduce_from_tensor_model_parallel_region,
)

from studies.timemachine.comparing import check_equal


def draw(random: Random) -> dict[str, Any]:
    """Draw sizes, and whether the activations are transposed."""
    return {
        "ranks": random.randint(1, 4),
        "rows": random.randint(1, 4),
        "columns": random.randint(1, 4),
        "is_transposed": random.random() < 0.5,
    }


def program(rank: int, *, rows: int, columns: int, is_transposed: bool) -> None:
    """Compare the sum of the ranks' parts with the sum of their numbers."""
    numbers = torch.arange(float(rows * columns), device="cuda").view(rows, columns)
    part = numbers * (rank + 1)
    whole = numbers * sum(range(1, dist.get_world_size() + 1))
    if is_transposed:
        part, whole = part.T, whole.T
    summed = reduce_from_tensor_model_parallel_region(part, dist.group.WORLD)
    check_equal(f"sum on rank {rank}", summed.cpu(), whole.cpu())
