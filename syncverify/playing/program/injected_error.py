"""An error of the training program itself, injected in the middle of a backward."""

from __future__ import annotations

from typing import Any, NoReturn

import torch
from typing_extensions import override

from syncverify.errors import SyncverifyError


class InjectedError(SyncverifyError):
    """The event `raise_in_backward` makes this backward fail.

    A `SyncverifyError`, so that the rank program tells it from an exception of the subject.
    """


class _FailingFunction(torch.autograd.Function):
    @override
    @staticmethod
    def forward(ctx: Any, value: torch.Tensor) -> torch.Tensor:
        return value.clone()

    @override
    @staticmethod
    def backward(ctx: Any, *gradients: torch.Tensor) -> NoReturn:
        raise InjectedError("the scenario wants this backward to fail")


def failing_term(device: torch.device) -> torch.Tensor:
    """Return a term of a loss, with value 0, that raises `InjectedError` in backward.

    The engine runs the backward of the latest forward operator first. When the error comes,
    terms that were computed after this term have their gradients; terms that were computed
    before never get them.
    """
    failed: torch.Tensor = _FailingFunction.apply(idle_term(device))  # type: ignore[no-untyped-call]
    return failed


def idle_term(device: torch.device) -> torch.Tensor:
    """Return a term of a loss, with value 0, that needs a gradient and uses no parameter."""
    return torch.zeros((), device=device, requires_grad=True)
