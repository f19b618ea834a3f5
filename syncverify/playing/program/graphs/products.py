"""The plain product, and splits of its constant for several uses of one parameter.

All constants are integers, and no part is larger than the whole. A dtype that holds the
constant exactly therefore holds each part, and their sum in any order.
"""

from __future__ import annotations

import torch


def dot(local: torch.Tensor, constant: torch.Tensor) -> torch.Tensor:
    """Return a scalar in float32; its gradient by `local` is exactly the constant."""
    return (local * constant).to(torch.float32).sum()


def halves(constant: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    """Split integers into two of the same sign that differ by at most 1."""
    smaller = (constant / 2).trunc()
    return smaller, constant - smaller


def parts(constant: torch.Tensor, count: int) -> list[torch.Tensor]:
    """Split integers into `count` integers of the same sign."""
    each = (constant / count).trunc()
    return [each] * (count - 1) + [constant - (count - 1) * each]
