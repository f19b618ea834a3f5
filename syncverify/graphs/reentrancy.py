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
    """Run backward inside of the backward of something else."""
    _inside_of_another(losses.total().backward)


def deep_reentrant(losses: Losses) -> None:
    """Run some terms' backward inside of 70 others, and the other terms' on the way."""
    names = [*losses.terms]
    deep, shallow = losses.without({*names[1::2]}), losses.without({*names[0::2]})

    def run(depth: int) -> None:
        with losses.as_rank():  # the engine may have changed threads
            if depth:
                _inside_of_another(lambda: run(depth - 1))
            else:
                deep.total().backward()

    if shallow.terms:
        shallow.total().backward()
    run(_DEEP)


def _inside_of_another(run: Callable[[], None]) -> None:
    leaf = torch.ones((), requires_grad=True)
    call(_RunsInside, leaf, run).backward()
