"""The plain use, and how its constant is split where a parameter is used several times.

All constants are integers, and each part of one is no larger than the whole: whatever a
dtype holds exactly, it holds in parts, and adds up in any order.
"""

from __future__ import annotations

import torch


def dot(local: torch.Tensor, constant: torch.Tensor) -> torch.Tensor:
    """Return a scalar in float32 whose gradient by `local` is the constant, exactly."""
    return (local * constant).to(torch.float32).sum()


def halves(constant: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    """Split integers into two of the same sign, as equal as they get."""
    smaller = (constant / 2).trunc()
    return smaller, constant - smaller


def parts(constant: torch.Tensor, count: int) -> list[torch.Tensor]:
    """Split integers into several of the same sign."""
    each = (constant / count).trunc()
    return [each] * (count - 1) + [constant - (count - 1) * each]
