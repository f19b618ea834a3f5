"""DeepSpeed's choice of experts for tokens, where an expert takes a limited number of tokens."""

from __future__ import annotations

from random import Random
from typing import Any

import torch

from studies.timemachine.comparing import check_equal
from studies.timemachine.programs.deepspeed_start import start

# isort: split
from deepspeed.moe.sharded_moe import topkgating


def draw(random: Random) -> dict[str, Any]:
    """Draw sizes, and a shift of all logits."""
    experts = random.randint(2, 4)
    return {
        "ranks": 1,
        "seed": random.randrange(1000),
        "tokens": random.randint(4, 10),
        "experts": experts,
        "chosen": random.randint(1, experts - 1),
        "shift": random.choice([-3.0, 0.0, 3.0]),
    }


def program(
    rank: int, *, seed: int, tokens: int, experts: int, chosen: int, shift: float
) -> None:
    """Compare the number of tokens that each expert takes with the tokens that chose it."""
    start()
    made = torch.Generator().manual_seed(seed)
    logits = torch.randn(tokens, experts, generator=made) + shift
    probabilities = logits.softmax(1)
    choices = torch.zeros_like(logits).scatter(1, logits.topk(chosen).indices, 1.0)
    capacity = -(-tokens * chosen // experts)  # with factor 1, rounded up
    expected = choices.sum(0).clamp(max=float(capacity))
    _, weights, is_sent, _ = topkgating(logits, chosen, 1.0, 1)
    check_equal("number of tokens of each expert", is_sent.sum((0, 2)), expected)
    kept = is_sent.any(2)
    masked = probabilities * kept
    share = masked / masked.sum(1, keepdim=True).clamp(min=1e-7)
    check_equal("weights of experts", weights.sum(2), share)
