"""Comparisons of programs: a value of a release beside the right one."""

from __future__ import annotations

import torch


class WrongValueError(AssertionError):
    """A value differs from that of plain PyTorch."""


def check_equal(name: str, observed: torch.Tensor, expected: torch.Tensor) -> None:
    """Compare two tensors, up to the rounding of their dtype.

    Raises:
        WrongValueError: They differ.
    """
    close = observed.shape == expected.shape and torch.allclose(
        observed.double(), expected.double(), rtol=1e-4, atol=1e-5
    )
    if not close:
        raise WrongValueError(
            f"{name} is wrong: expected {_first(expected)}, observed {_first(observed)}"
        )


def _first(tensor: torch.Tensor) -> list[float]:
    numbers: list[float] = tensor.detach().flatten()[:4].tolist()
    return [float(f"{number:.6g}") for number in numbers]
