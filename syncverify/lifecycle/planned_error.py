"""An error of the training program itself, in the middle of a backward."""

from __future__ import annotations

from typing import Any, NoReturn

import torch
from typing_extensions import override

from syncverify.errors import SyncverifyError


class PlannedError(SyncverifyError):
    """The scenario wants this backward to fail."""


class _Fails(torch.autograd.Function):
    @override
    @staticmethod
    def forward(ctx: Any, value: torch.Tensor) -> torch.Tensor:
        return value.clone()

    @override
    @staticmethod
    def backward(ctx: Any, *gradients: torch.Tensor) -> NoReturn:
        raise PlannedError("the scenario wants this backward to fail")


def failing_term(device: torch.device) -> torch.Tensor:
    """Return a term of a loss, zero, whose backward raises `PlannedError`.

    The engine runs backward what was last in forward first: what was computed after this
    has its gradients when the error comes, what was computed before never gets them.
    """
    failed: torch.Tensor = _Fails.apply(idle_term(device))  # type: ignore[no-untyped-call]
    return failed


def idle_term(device: torch.device) -> torch.Tensor:
    """Return a term of a loss, zero, that needs a gradient and has no parameter in it."""
    return torch.zeros((), device=device, requires_grad=True)
