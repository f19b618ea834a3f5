"""Backwards that run inside of others."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from typing_extensions import override

from syncverify.graphs.functions import call
from syncverify.graphs.losses import Losses

# The engine nests 60 on one thread, and then goes on on another one.
_DEEP = 70


class _RunsInside(torch.autograd.Function):
    """Calls a function in its backward, with gradients enabled."""

    @override
    @staticmethod
    def forward(ctx: Any, value: torch.Tensor, run: Callable[[], None]) -> torch.Tensor:
        ctx.run = run
        return value.clone()

    @override
    @staticmethod
    def backward(ctx: Any, *gradients: Any) -> Any:
        with torch.enable_grad():
            ctx.run()
        return gradients[0], None


def reentrant(losses: Losses) -> None:
    """Run half of backward inside of another one, which runs the other half."""
    _half_inside(losses, depth=1)


def deep_reentrant(losses: Losses) -> None:
    """Do so inside of 70 backwards, of which the outermost one runs the other half."""
    _half_inside(losses, depth=_DEEP)


def _half_inside(losses: Losses, depth: int) -> None:
    total = losses.total()
    half = torch.full_like(total, 0.5)

    def run(depth: int) -> None:
        with losses.as_rank():  # the engine may have changed threads
            if depth:
                _wrapped(lambda: run(depth - 1)).backward()
            else:
                total.backward(half, retain_graph=True)

    # Autograd runs first what was made last: the inner half, while the graph is whole.
    inner = _wrapped(lambda: run(depth - 1))
    torch.autograd.backward([inner, total], [torch.ones_like(inner), half])


def _wrapped(run: Callable[[], None]) -> torch.Tensor:
    """Return a scalar whose backward calls a function."""
    leaf = torch.ones((), requires_grad=True)
    result: torch.Tensor = call(_RunsInside, leaf, run)
    return result
