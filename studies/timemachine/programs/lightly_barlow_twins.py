"""Lightly's Barlow Twins loss, whose correlations are summed over ranks."""

from __future__ import annotations

from typing import Final

import torch

from studies.timemachine.programs.lightly_start import check_gradient, draw
from studies.timemachine.programs.loading import file_of

__all__ = ["draw", "program"]

_LOSSES: Final = file_of("lightly", "loss/barlow_twins_loss.py")


def program(rank: int, *, seed: int, samples: int, width: int) -> None:
    """Compare with the loss of the mean of all ranks' correlations."""
    loss = _LOSSES.BarlowTwinsLoss(gather_distributed=True)

    def local(z: torch.Tensor) -> torch.Tensor:
        result: torch.Tensor = loss(z[0], z[1])
        return result

    def whole(z: torch.Tensor) -> torch.Tensor:
        centred = z - z.mean(2, keepdim=True)
        scaled = centred / (z.var(2, correction=0, keepdim=True) + 1e-5).sqrt()
        correlations = torch.einsum("rni,rnj->rij", scaled[:, 0], scaled[:, 1])
        off = (correlations / samples).mean(0) - torch.eye(width, device=z.device)
        on_diagonal = off.diagonal().square().sum()
        weight: float = loss.lambda_param
        return on_diagonal + weight * (off.square().sum() - on_diagonal)

    check_gradient(
        rank, seed=seed, shape=(2, samples), width=width, local=local, whole=whole
    )
