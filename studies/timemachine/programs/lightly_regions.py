"""Lightly's contrast of regions (DetCon), with the regions of other ranks as negatives."""

from __future__ import annotations

from typing import Final

import torch

from studies.timemachine.programs.lightly_start import check_gradient, draw
from studies.timemachine.programs.loading import file_of

__all__ = ["draw", "program"]

_LOSSES: Final = file_of("lightly", "loss/detcon_loss.py")
_REGIONS: Final = 2


def program(rank: int, *, seed: int, samples: int, width: int) -> None:
    """Compare with the loss of all ranks' outputs on one rank."""

    def loss(z: torch.Tensor, *, gathers: bool) -> torch.Tensor:
        mask = torch.arange(_REGIONS, device=z.device).expand(z.shape[1], -1)
        contrast = _LOSSES.DetConBLoss(gather_distributed=gathers)
        result: torch.Tensor = contrast(z[0], z[1], z[2], z[3], mask, mask)
        return result

    check_gradient(
        rank,
        seed=seed,
        shape=(4, samples, _REGIONS),
        width=width,
        local=lambda z: loss(z, gathers=True),
        whole=lambda z: loss(z.transpose(0, 1).flatten(1, 2), gathers=False),
    )
