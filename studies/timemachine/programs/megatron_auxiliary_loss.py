"""Megatron's scale of an auxiliary loss of experts, beside that of the main loss."""

from __future__ import annotations

from random import Random
from types import SimpleNamespace
from typing import Any

import torch
from megatron.core.pipeline_parallel.schedules import forward_step_calc_loss
from megatron.core.transformer.moe.moe_utils import MoEAuxLossAutoScaler

from studies.timemachine.comparing import check_equal


def draw(random: Random) -> dict[str, Any]:
    """Draw the number of micro-batches, and the size of the context-parallel group."""
    return {
        "ranks": 1,
        "context_size": random.randint(1, 4),
        "micro_batches": random.randint(1, 4),
    }


def program(rank: int, *, context_size: int, micro_batches: int) -> None:
    """Compare the gradient of the auxiliary loss with that of an equal main loss."""
    of_main, of_auxiliary = gradients(
        MoEAuxLossAutoScaler, context_size, micro_batches, num_moe_experts=2
    )
    check_equal(f"gradient of the auxiliary loss on rank {rank}", of_auxiliary, of_main)


def gradients(
    scaler: Any, context_size: int, micro_batches: int, **config: Any
) -> tuple[torch.Tensor, torch.Tensor]:
    """Return the gradients of a main loss and of an equal loss beside it."""
    weight = torch.ones(1, requires_grad=True)
    helper = torch.ones(1, requires_grad=True)
    activations = scaler.apply(weight * 1.0, helper * 1.0)
    settings = {
        "calculate_per_token_loss": False,
        "num_moe_experts": None,
        "grad_scale_func": None,
        "timers": None,
        **config,
    }
    loss, _ = forward_step_calc_loss(
        torch.nn.Identity(),
        activations.sum(),
        lambda output: (output, {}),
        SimpleNamespace(**settings),
        None,
        False,
        micro_batches,
        [],
        context_size,
        True,
    )
    loss.backward()
    assert weight.grad is not None
    assert helper.grad is not None
    return weight.grad, helper.grad
