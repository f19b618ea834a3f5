"""Lightly's sketched regularization of outputs (SIGReg), whose sums go over ranks."""

from __future__ import annotations

from typing import Final

import torch

from studies.timemachine.programs.lightly_start import check_gradient, draw
from studies.timemachine.programs.loading import file_of

__all__ = ["draw", "program"]

_LOSSES: Final = file_of("lightly", "loss/lejepa_loss.py")


def program(rank: int, *, seed: int, samples: int, width: int) -> None:
    """Compare with the loss of all ranks' outputs on one rank."""

    def loss(z: torch.Tensor, *, gathers: bool) -> torch.Tensor:
        torch.manual_seed(seed)  # the directions on which it projects
        regularization = _LOSSES.SIGReg(
            knots=5, num_vectors=3, gather_distributed=gathers
        )
        result: torch.Tensor = regularization.to(z.device)(z)
        return result

    check_gradient(
        rank,
        seed=seed,
        shape=(samples,),
        width=width,
        local=lambda z: loss(z, gathers=True),
        whole=lambda z: loss(z.flatten(0, 1), gathers=False),
    )
