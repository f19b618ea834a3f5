"""Losses of Lightly over the batches of all ranks, and what data parallelism makes of them."""

from __future__ import annotations

import os
from collections.abc import Callable
from random import Random
from typing import Any

import torch
import torch.distributed as dist

from studies.timemachine.comparing import check_equal

os.environ["LIGHTLY_DID_VERSION_CHECK"] = "True"  # an import asks a server otherwise

Loss = Callable[[torch.Tensor], torch.Tensor]


def draw(random: Random) -> dict[str, Any]:
    """Draw the number of ranks, and the sizes of a rank's batch."""
    return {
        "ranks": random.randint(1, 4),
        "seed": random.randrange(1000),
        "samples": random.randint(2, 4),
        "width": random.randint(2, 3),
    }


def check_gradient(
    rank: int,
    *,
    seed: int,
    shape: tuple[int, ...],
    width: int,
    local: Loss,
    whole: Loss,
) -> None:
    """Compare the mean of the ranks' gradients with the gradient of the loss of the whole batch.

    Args:
        rank: This rank.
        seed: Decides on the inputs and the weight.
        shape: Shape of a rank's inputs, without their width.
        width: Width of inputs and of outputs.
        local: The release's loss of a rank's outputs, which takes in those of other ranks.
        whole: The loss of the outputs of all ranks, in an additional first dimension.
    """
    made = torch.Generator().manual_seed(seed)
    ranks = dist.get_world_size()
    inputs = torch.randn(ranks, *shape, width, generator=made).to("cuda")
    weight = torch.randn(width, width, generator=made).to("cuda").requires_grad_()
    (expected,) = torch.autograd.grad(whole(inputs @ weight), [weight])
    (gradient,) = torch.autograd.grad(local(inputs[rank] @ weight), [weight])
    dist.all_reduce(gradient)
    check_equal(
        f"mean of the ranks' gradients on rank {rank}",
        gradient.cpu() / ranks,
        expected.cpu(),
    )
