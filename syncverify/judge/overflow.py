"""Comparison of gradients in which some element overflows: Inf or NaN is expected there."""

from __future__ import annotations

from typing import Final

import torch

TEXTS: Final = {
    "overflow_hidden": "an element is finite, although a contribution to it is Inf or NaN",
    "not_finite": "Inf or NaN of one element is in other elements too",
    "unexplained": "no known defect gives its finite elements",
}


def same_values(one: torch.Tensor, other: torch.Tensor) -> bool:
    """Tell whether two tensors of one shape are equal in every element; NaN equals NaN."""
    if torch.equal(one, other):
        return True
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
    """Return the kind of a wrong gradient of the right shape; None without an overflow."""
    finite, seen = value.isfinite(), observed.isfinite()
    if finite.all():
        return None
    if (seen & ~finite).any():
        return "overflow_hidden"
    if (finite & ~seen).any():
        return "not_finite"
    return "unexplained"
