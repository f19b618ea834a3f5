"""DeepSpeed's attention with a sequence that is split over ranks (Ulysses), of one sequence."""

from __future__ import annotations

import inspect
from random import Random
from typing import Any

import torch
import torch.distributed as dist
from typing_extensions import override

from studies.timemachine.comparing import check_equal
from studies.timemachine.programs.deepspeed_start import start

# isort: split
from deepspeed.sequence.layer import DistributedAttention


def draw(random: Random) -> dict[str, Any]:
    """Draw sizes of one sequence."""
    return {
        "ranks": random.choice([1, 2, 4]),
        "seed": random.randrange(1000),
        "sequences": 1,
        "local_length": random.randint(1, 3),
        "heads_a_rank": random.randint(1, 2),
        "width": random.randint(1, 3),
    }


def attention(query: Any, key: Any, value: Any) -> Any:
    """Mix positions of each head, so that a swap of any two shows."""
    return (query * key).cumsum(0) + value


class _Attention(torch.nn.Module):
    @override
    def forward(self, query: Any, key: Any, value: Any) -> Any:
        return attention(query, key, value)


def program(
    rank: int,
    *,
    seed: int,
    sequences: int,
    local_length: int,
    heads_a_rank: int,
    width: int,
) -> None:
    """Compare outputs and gradients with attention over the whole sequence."""
    start()
    ranks = dist.get_world_size()
    made = torch.Generator().manual_seed(seed)
    shape = (local_length * ranks, sequences, heads_a_rank * ranks, width)
    whole = [torch.randn(shape, generator=made, requires_grad=True) for _ in range(3)]
    weight = torch.randn(shape, generator=made)
    mine = slice(rank * local_length, (rank + 1) * local_length)
    parts = [
        each.detach()[mine].to("cuda", copy=True).requires_grad_() for each in whole
    ]
    split = DistributedAttention(_Attention(), dist.group.WORLD)
    takes_batch = "batch_dim_idx" in inspect.signature(split.forward).parameters
    output = split(*parts, *([1] if takes_batch else []))
    (output * weight[mine].to("cuda")).sum().backward()
    expected = attention(*whole)
    (expected * weight).sum().backward()
    check_equal(f"output on rank {rank}", output.cpu(), expected[mine])
    for name, part, each in zip(("query", "key", "value"), parts, whole, strict=True):
        assert part.grad is not None
        assert each.grad is not None
        check_equal(
            f"gradient of the {name} on rank {rank}", part.grad.cpu(), each.grad[mine]
        )
