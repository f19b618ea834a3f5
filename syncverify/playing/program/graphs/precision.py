"""Mixed precision: a product that runs in bfloat16, for any dtype of the parameter."""

from __future__ import annotations

import torch

from syncverify.playing.program.graphs.products import dot

_BASE = 256  # bfloat16 holds integers exactly up to here


def autocast(local: torch.Tensor, constant: torch.Tensor) -> torch.Tensor:
    """Multiply matrices under autocast, by two digits that bfloat16 holds exactly."""
    if local.dtype == torch.float64:  # autocast does not cast float64
        return dot(local, constant)
    high = (constant / _BASE).trunc() * _BASE
    with torch.autocast(local.device.type, dtype=torch.bfloat16):
        terms = [
            torch.mm(local.reshape(1, -1), digit.reshape(-1, 1))
            for digit in (high, constant - high)
        ]
    return (terms[0] + terms[1]).to(torch.float32).sum()
