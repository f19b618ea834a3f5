"""Reentrant backwards: a backward inside of another one."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import torch
from typing_extensions import override

from syncverify.playing.program.graphs.custom_function import call
from syncverify.playing.program.graphs.losses import AsThread, Losses

# The engine nests 60 backwards on one thread, and runs the next ones on another thread.
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
    """Run one half of the gradient in a nested backward, and the other half around it."""
    _half_inside(losses, depth=1)


def deep_reentrant(losses: Losses) -> None:
    """Run one half of the gradient in 70 nested backwards, and the other half around them."""
    _half_inside(losses, depth=_DEEP)


def _half_inside(losses: Losses, depth: int) -> None:
    # The engine runs the latest node first: the inner half, before the outer half frees the
    # graph that both halves share.
    total = losses.total()
    half = torch.full_like(total, 0.5)
    inner = _wrapped(partial(_run_half, losses.as_rank(), total, depth - 1), total)
    torch.autograd.backward([inner, total], [torch.ones_like(inner), half])


def _run_half(as_rank: AsThread, total: torch.Tensor, depth: int) -> None:
    """Run half of the gradient inside of some more backwards."""
    # No closure: one that calls itself is a cycle, and would keep the graph alive.
    with as_rank():  # the engine may run this on another thread
        if depth:
            _wrapped(partial(_run_half, as_rank, total, depth - 1), total).backward()
        else:
            total.backward(torch.full_like(total, 0.5), retain_graph=True)


def _wrapped(run: Callable[[], None], total: torch.Tensor) -> torch.Tensor:
    """Return a scalar with a backward that calls a function.

    It lies on the device of the loss: the engine has a thread for each device, and orders
    the nodes of one thread alone.
    """
    leaf = torch.ones((), requires_grad=True, device=total.device)
    result: torch.Tensor = call(_RunsInside, leaf, run)
    return result
