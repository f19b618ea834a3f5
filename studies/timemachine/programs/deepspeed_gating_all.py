"""DeepSpeed's choice of experts for tokens, where no token is dropped."""

from __future__ import annotations

import torch

from studies.timemachine.comparing import check_equal
from studies.timemachine.programs import deepspeed_gating
from studies.timemachine.programs.deepspeed_start import start

# isort: split
from deepspeed.moe.sharded_moe import topkgating
from deepspeed.utils import groups

draw = deepspeed_gating.draw


def program(
    rank: int, *, seed: int, tokens: int, experts: int, chosen: int, shift: float
) -> None:
    """Compare the weights of experts with their share of the probabilities."""
    start()
    groups.mpu = None
    made = torch.Generator().manual_seed(seed)
    logits = torch.randn(tokens, experts, generator=made) + shift
    choices = torch.zeros_like(logits).scatter(1, logits.topk(chosen).indices, 1.0)
    masked = logits.softmax(1) * choices
    _, weights, _, _ = topkgating(logits, chosen, 1.0, 1, drop_tokens=False)
    check_equal(
        "weights of experts", weights.sum(2), masked / masked.sum(1, keepdim=True)
    )
