"""Compared values and findings of one step, made by hand."""

from __future__ import annotations

from dataclasses import replace

import torch

from syncverify.whole_step.causes import StepMistake
from syncverify.whole_step.differences import ComparedValue
from syncverify.whole_step.findings import WrongQuantity
from syncverify.whole_step.values import Quantity


def compared(got: float, right: float, tolerance: float = 1e-12) -> ComparedValue:
    """Return a gradient of one element on rank 0, beside the right one."""
    ranks = {0: torch.tensor([got]).double()}
    expected = {0: torch.tensor([right]).double()}
    return ComparedValue(Quantity.GRADIENT, 0, "w", ranks, expected, tolerance)


def finding(cause: StepMistake, *names: str) -> WrongQuantity:
    """Return wrong gradients of the second step, of parameters with these names."""
    values = tuple(replace(compared(2.0, 1.0), name=name) for name in names)
    return WrongQuantity(Quantity.GRADIENT, 1, cause, values, (), 9)
