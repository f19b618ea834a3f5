"""Megatron's auxiliary and z losses of experts, with gradients divided by tokens or by ranks."""

from __future__ import annotations

from random import Random
from types import SimpleNamespace
from typing import Any

import torch
import torch.distributed as dist
from megatron.core.transformer.moe.router import TopKRouter
from megatron.core.transformer.transformer_config import TransformerConfig

from studies.timemachine.comparing import check_equal


def draw(random: Random) -> dict[str, Any]:
    """Draw tokens of one sequence, whose parts are on the ranks of a tensor-parallel group."""
    return {
        "ranks": random.randint(1, 4),
        "seed": random.randrange(1000),
        "tokens": random.randint(1, 5),
        "sequences": 1,
        "experts": random.randint(2, 4),
        "loss": random.choice(["aux_loss", "seq_aux_loss", "z_loss"]),
    }


def program(
    rank: int, *, seed: int, tokens: int, sequences: int, experts: int, loss: str
) -> None:
    """Compare the gradient of a loss that is divided by tokens later with the divided one."""
    made = torch.Generator().manual_seed(seed + rank)
    logits = torch.randn(tokens, sequences, experts, generator=made)
    plain, by_tokens = (
        _gradient(logits.to("cuda", copy=True), loss, is_divided_later=later)
        for later in (False, True)
    )
    all_tokens = tokens * sequences * dist.get_world_size()
    check_equal(
        f"gradient of the {loss} on rank {rank}",
        by_tokens.cpu() / all_tokens,
        plain.cpu(),
    )


def _gradient(
    logits: torch.Tensor, loss: str, *, is_divided_later: bool
) -> torch.Tensor:
    """Return the gradient of the loss of experts alone."""
    logits.requires_grad_()
    is_auxiliary = loss != "z_loss"
    world = dist.group.WORLD
    router = TopKRouter(
        TransformerConfig(
            num_layers=1,
            hidden_size=4,
            num_attention_heads=1,
            num_moe_experts=logits.shape[-1],
            moe_router_topk=1,
            moe_router_pre_softmax=True,
            moe_router_load_balancing_type=loss if is_auxiliary else "none",
            moe_aux_loss_coeff=1.0 if is_auxiliary else 0.0,
            moe_z_loss_coeff=None if is_auxiliary else 1.0,
            calculate_per_token_loss=is_divided_later,
            add_bias_linear=False,
            use_cpu_initialization=True,
        ),
        SimpleNamespace(tp=world, cp=world, tp_cp=world, tp_dp_cp=world),
    )
    router.set_layer_number(1)
    weights, _ = router.routing(logits)
    (weights.sum() * 0.0).backward()
    assert logits.grad is not None
    return logits.grad
