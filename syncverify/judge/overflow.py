"""Comparison of gradients in which some element overflows: Inf or NaN is expected there."""

from __future__ import annotations

from typing import Final

import torch

TEXTS: Final = {
    "overflow_hidden": "an element is finite, although a contribution to it is Inf or NaN",
    "not_finite": "Inf or NaN of one element is in other elements too",
    "unexplained": "no known defect gives its finite elements",
}

_LARGEST: Final = torch.tensor(
    [
        torch.finfo(e).max
        for e in (torch.float64, torch.float32, torch.float16, torch.bfloat16)
    ],
    dtype=torch.float64,
)


def same_values(one: torch.Tensor, other: torch.Tensor) -> bool:
    """Tell whether two tensors are equal in shape and in every element; NaN equals NaN."""
    if one.shape != other.shape or torch.equal(one, other):
        return one.shape == other.shape
    nan = one.isnan()
    return bool(nan.any()) and torch.equal(
        one.masked_fill(nan, 0), other.masked_fill(nan & other.isnan(), 0)
    )


def overflows_alike(observed: torch.Tensor, value: torch.Tensor) -> bool:
    """Tell whether finite elements are right, and the others are no numbers either."""
    finite = value.isfinite()
    return torch.equal(finite, observed.isfinite()) and torch.equal(
        observed[finite], value[finite]
    )


def kind(observed: torch.Tensor, value: torch.Tensor) -> str | None:
    """Return the kind of a wrong gradient of the right shape; None without an overflow.

    A hidden overflow is reported only where the gradient shows it: all other elements
    are right, or all that there are became the largest numbers of a dtype. A finite number in
    its place may have come from anywhere.
    """
    finite, seen = value.isfinite(), observed.isfinite()
    if finite.all():
        return None
    if (seen & ~finite).any():
        return "overflow_hidden" if _is_hidden(observed, value) else "unexplained"
    if (finite & ~seen).any():
        return "not_finite"
    return "unexplained"


def _is_hidden(observed: torch.Tensor, value: torch.Tensor) -> bool:
    finite = value.isfinite()
    if finite.any():
        return torch.equal(observed[finite], value[finite])
    return bool(torch.isin(observed.abs(), _LARGEST).all())
