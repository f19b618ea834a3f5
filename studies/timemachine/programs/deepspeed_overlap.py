"""DeepSpeed's ZeRO stage 2 with overlapped communication; some layers have a stream."""

import os
from contextlib import suppress
from random import Random
from typing import Any

import studies.timemachine.programs.deepspeed_names  # noqa: F401, before DeepSpeed

# isort: split
os.environ["DS_ACCELERATOR"] = "cuda"  # DeepSpeed looks for hardware on import

import deepspeed
import torch
from deepspeed.utils import groups
from torch import nn

with suppress(ModuleNotFoundError):  # older releases have none
    # `initialize()` would import it in the middle of a run.
    import deepspeed.runtime.zero.muon.muon_optimizer  # noqa: F401


def draw(random: Random) -> dict[str, Any]:
    """Draw sizes, buckets, micro-batches, and the layers that have a stream."""
    return {
        "ranks": 1,
        "stage": 2,
        "widths": [random.randint(1, 4) for _ in range(random.randint(2, 4))],
        "bucket": random.choice([8, 16, 1000]),
        "micro_batches": random.randint(1, 2),
        "side": random.randint(0, 2),
    }


def program(
    rank: int,
    *,
    stage: int,
    widths: list[int],
    bucket: int,
    micro_batches: int,
    side: int,
) -> None:
    """Train two steps."""
    os.environ["LOCAL_RANK"] = str(rank)
    forget_groups()
    deepspeed.init_distributed(dist_backend="nccl", verbose=False)
    torch.manual_seed(0)
    sizes = [*widths, 1]
    model = nn.Sequential(*map(nn.Linear, sizes, sizes[1:]))
    engine, *_ = deepspeed.initialize(
        model=model,
        optimizer=torch.optim.SGD(model.parameters(), lr=0.1),
        config={
            "train_micro_batch_size_per_gpu": 1,
            "gradient_accumulation_steps": micro_batches,
            "zero_allow_untested_optimizer": True,
            "bf16": {"enabled": True},
            "zero_optimization": {
                "stage": stage,
                "overlap_comm": True,
                "contiguous_gradients": True,
                "reduce_bucket_size": bucket,
            },
        },
    )
    streams = [torch.cuda.Stream() for _ in range(side)]
    for _ in range(2 * micro_batches):
        x = torch.ones(1, widths[0], device="cuda", dtype=torch.bfloat16)
        for number, layer in enumerate(engine.module):
            x = _on(streams, number, layer, x)
        engine.backward(x.sum())
        engine.step()
    engine.destroy()


def forget_groups() -> None:
    """Forget the groups of the scenario before."""
    deepspeed.comm.comm.cdb = None
    for name, value in list(vars(groups).items()):
        if isinstance(value, torch.distributed.ProcessGroup):
            setattr(groups, name, None)


def _on(streams: list[Any], number: int, layer: nn.Module, x: torch.Tensor) -> Any:
    """Run a layer on its stream, ordered with the work before and after it."""
    if number >= len(streams):
        return layer(x)
    stream, current = streams[number], torch.cuda.current_stream()
    stream.wait_stream(current)
    x.record_stream(stream)
    with torch.cuda.stream(stream):
        y = layer(x)
    current.wait_stream(stream)
    y.record_stream(current)
    return y
