"""Megatron's limit of tokens an expert, which may be more than there are."""

from __future__ import annotations

from random import Random
from typing import Any

import torch
from megatron.core.transformer.moe.moe_utils import apply_router_token_dropping

from studies.timemachine.comparing import check_equal


def draw(random: Random) -> dict[str, Any]:
    """Draw sizes and the factor of the limit."""
    experts = random.randint(2, 4)
    return {
        "ranks": 1,
        "seed": random.randrange(1000),
        "tokens": random.randint(1, 8),
        "experts": experts,
        "chosen": random.randint(1, experts),
        "factor": random.choice([0.5, 1.0, 2.0, 4.0]),
        "policy": random.choice(["probs", "position"]),
    }


def program(
    rank: int,
    *,
    seed: int,
    tokens: int,
    experts: int,
    chosen: int,
    factor: float,
    policy: str,
) -> None:
    """Compare the number of tokens of each expert with the tokens that chose it."""
    made = torch.Generator().manual_seed(seed)
    logits = torch.randn(tokens, experts, generator=made)
    routes = (
        torch.zeros_like(logits).scatter(1, logits.topk(chosen).indices, 1.0).bool()
    )
    weights = logits.softmax(1) * routes
    limit = -int(-tokens * chosen * factor // experts)  # rounded up
    _, kept = apply_router_token_dropping(weights, routes, chosen, factor, policy)
    expected = routes.sum(0).clamp(max=limit)
    check_equal("number of tokens of each expert", kept.sum(0), expected)
