"""Lightly's gathering of outputs, through which gradients go back to each rank."""

from __future__ import annotations

import torch

from studies.timemachine.programs.lightly_start import check_gradient, draw

# isort: split
from lightly.utils.dist import gather

__all__ = ["draw", "program"]


def program(rank: int, *, seed: int, samples: int, width: int) -> None:
    """Compare with a loss of each rank's outputs beside those of all ranks."""

    def beside(mine: torch.Tensor, every: torch.Tensor) -> torch.Tensor:
        return (mine @ every.flatten(0, -2).T).logsumexp(1).mean()

    check_gradient(
        rank,
        seed=seed,
        shape=(samples,),
        width=width,
        local=lambda z: beside(z, torch.stack(gather(z))),
        whole=lambda z: torch.stack([beside(each, z) for each in z]).mean(),
    )
