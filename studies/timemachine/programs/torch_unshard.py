"""An interleaved pipeline over FSDP2: a stage is gathered as a whole before its forward."""

from __future__ import annotations

from random import Random
from typing import Any

import torch
from torch import nn
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard
from torch.distributed.pipelining import PipelineStage, ScheduleInterleaved1F1B
from torch.distributed.tensor import DTensor

from studies.timemachine.comparing import WrongValueError

_RANKS_OF_PIPELINE = 2


def draw(random: Random) -> dict[str, Any]:
    """Draw stages, layers of a stage, and micro-batches."""
    return {
        "ranks": _RANKS_OF_PIPELINE * random.randint(1, 2),
        "stages": random.randint(2, 3),
        "layers": random.randint(1, 3),
        "micro_batches": _RANKS_OF_PIPELINE * random.randint(1, 2),
        "is_nested": random.random() < 0.5,
    }


def program(
    rank: int, *, stages: int, layers: int, micro_batches: int, is_nested: bool
) -> None:
    """Train one step, and look at the parameters of a stage before each forward."""
    torch.manual_seed(0)
    shards = torch.distributed.get_world_size() // _RANKS_OF_PIPELINE
    mesh = init_device_mesh(
        "cuda", (_RANKS_OF_PIPELINE, shards), mesh_dim_names=("pp", "dp")
    )
    place, count = mesh["pp"].get_local_rank(), stages * _RANKS_OF_PIPELINE
    device = torch.device("cuda", torch.cuda.current_device())
    found = list[str]()  # a schedule hides the errors of a stage
    parts: list[Any] = [
        PipelineStage(
            _sharded(layers, mesh["dp"], found, is_nested=is_nested),
            number, count, device,
            # Without these it runs a forward to learn them, which gathers a stage.
            input_args=torch.empty(1, 2, device="meta", requires_grad=True),
            output_args=torch.empty(1, 2, device="meta", requires_grad=True),
            group=mesh.get_group("pp"),
        )
        for number in range(place, count, _RANKS_OF_PIPELINE)
    ]  # fmt: skip
    schedule = ScheduleInterleaved1F1B(parts, micro_batches, loss_fn=_loss)
    inputs = [torch.ones(micro_batches, 2, device=device)] if place == 0 else []
    is_last = place == _RANKS_OF_PIPELINE - 1
    target = torch.ones(micro_batches, 2, device=device) if is_last else None
    schedule.step(*inputs, target=target)
    if found:
        raise WrongValueError(f"still sharded where a stage begins: {found}")


def _sharded(layers: int, mesh: Any, found: list[str], *, is_nested: bool) -> nn.Module:
    """Make a stage whose layers are gathered and freed by the schedule alone."""
    stage = nn.Sequential(*[nn.Linear(2, 2) for _ in range(layers)])
    stage.register_forward_pre_hook(
        lambda *_: found.extend(
            name for name, p in stage.named_parameters() if isinstance(p, DTensor)
        )
    )
    if is_nested:
        for layer in stage:
            fully_shard(layer, mesh=mesh, reshard_after_forward=False)
    fully_shard(stage, mesh=mesh, reshard_after_forward=False)
    return stage


def _loss(output: torch.Tensor, target: torch.Tensor) -> torch.Tensor:
    return (output - target).sum()
