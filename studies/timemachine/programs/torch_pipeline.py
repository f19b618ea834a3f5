"""Pipelines of several schedules."""

from random import Random
from typing import Any, Final

import torch
from torch import nn
from torch.distributed.pipelining import (
    PipelineStage,
    Schedule1F1B,
    ScheduleGPipe,
    ScheduleInterleaved1F1B,
)

_OF_ONE_STAGE: Final = {"GPipe": ScheduleGPipe, "1F1B": Schedule1F1B}
_INTERLEAVED: Final = "Interleaved1F1B"


def draw(random: Random) -> dict[str, Any]:
    """Draw a schedule and its micro-batches."""
    ranks = random.randint(2, 3)
    return {
        "ranks": ranks,
        "schedule": random.choice([*_OF_ONE_STAGE, _INTERLEAVED]),
        "micro_batches": ranks * random.randint(1, 2),
    }


def program(rank: int, *, schedule: str, micro_batches: int) -> None:
    """Train a step of layers whose weight is 1, in which each gradient is known."""
    ranks = torch.distributed.get_world_size()
    stages = 2 * ranks if schedule == _INTERLEAVED else ranks
    device = torch.device("cuda", torch.cuda.current_device())
    parts: list[Any] = [
        PipelineStage(_layer().to(device), number, stages, device)
        for number in range(rank, stages, ranks)
    ]
    if schedule == _INTERLEAVED:
        pipeline: Any = ScheduleInterleaved1F1B(parts, micro_batches, loss_fn=_loss)
    else:
        pipeline = _OF_ONE_STAGE[schedule](parts[0], micro_batches, loss_fn=_loss)
    x = torch.arange(1.0, micro_batches + 1, device=device).unsqueeze(1)
    inputs = [x] if rank == 0 else []
    target = torch.zeros_like(x) if rank == ranks - 1 else None
    pipeline.step(*inputs, target=target)
    for part in parts:
        torch.testing.assert_close(part.submod.weight.grad, x.mean().view(1, 1))


def _layer() -> nn.Module:
    layer = nn.Linear(1, 1, bias=False)
    nn.init.ones_(layer.weight)
    return layer


def _loss(output: torch.Tensor, target: torch.Tensor) -> torch.Tensor:
    return (output - target).sum()
