"""Megatron's scores of experts for the auxiliary loss, of logits in a lower dtype."""

from __future__ import annotations

from random import Random
from typing import Any

import torch
from megatron.core.transformer.moe.moe_utils import compute_routing_scores_for_aux_loss

from studies.timemachine.comparing import check_equal


def draw(random: Random) -> dict[str, Any]:
    """Draw sizes and the dtype of the logits."""
    return {
        "ranks": 1,
        "seed": random.randrange(1000),
        "tokens": random.randint(1, 6),
        "experts": random.randint(2, 6),
        "dtype": random.choice(["float32", "bfloat16"]),
    }


def program(rank: int, *, seed: int, tokens: int, experts: int, dtype: str) -> None:
    """Compare the scores with those of the same logits in float32."""
    made = torch.Generator().manual_seed(seed)
    logits = torch.randn(tokens, experts, generator=made).to(getattr(torch, dtype))
    _, scores = compute_routing_scores_for_aux_loss(logits, 1, "sigmoid")
    sigmoid = logits.float().sigmoid()
    check_equal("scores of experts", scores, sigmoid / sigmoid.sum(1, keepdim=True))
