"""d9d's choice of gradients in a split backward, after a backward that raised."""

from __future__ import annotations

from contextlib import suppress
from random import Random
from typing import Any

import torch
from d9d.core.autograd import GLOBAL_GRAD_CONTEXT, GradDirection
from typing_extensions import override

from studies.timemachine.comparing import check_equal


def draw(random: Random) -> dict[str, Any]:
    """Draw the backward passes before the last one, and which of them raise."""
    return {
        "ranks": 1,
        "passes": [
            (
                random.choice([each.name for each in GradDirection]),
                random.random() < 0.3,
            )
            for _ in range(random.randint(0, 3))
        ],
        "width": random.randint(1, 4),
    }


class _Scale(torch.autograd.Function):
    """A product that computes the chosen gradients alone, as d9d's own operators do."""

    @staticmethod
    @override
    def forward(ctx: Any, x: Any, weight: Any) -> Any:
        ctx.save_for_backward(x, weight)
        return x * weight

    @staticmethod
    @override
    def backward(ctx: Any, of_y: Any) -> Any:
        x, weight = ctx.saved_tensors
        chosen = GLOBAL_GRAD_CONTEXT.check_direction
        of_x = of_y * weight if chosen(GradDirection.inputs) else None
        return of_x, of_y * x if chosen(GradDirection.weight) else None


def program(rank: int, *, passes: list[tuple[str, bool]], width: int) -> None:
    """Compare the gradients of a whole backward with the product rule."""
    before = GLOBAL_GRAD_CONTEXT._enabled_directions  # noqa: SLF001, of the scenario before
    try:
        for direction, raises in passes:
            with suppress(RuntimeError):
                _partial(GradDirection[direction], raises=raises)
        x = torch.full((width,), 2.0, requires_grad=True)
        weight = torch.full((width,), 3.0, requires_grad=True)
        _Scale.apply(x, weight).sum().backward()  # type: ignore[no-untyped-call]
        for name, seen, right in (("input", x, weight), ("weight", weight, x)):
            observed = torch.zeros_like(right) if seen.grad is None else seen.grad
            check_equal(f"gradient of the {name} on rank {rank}", observed, right)
    finally:
        GLOBAL_GRAD_CONTEXT._enabled_directions = before  # noqa: SLF001


def _partial(direction: GradDirection, *, raises: bool) -> None:
    """Enter one part of a split backward, which may raise, as where memory runs out."""
    with GLOBAL_GRAD_CONTEXT.with_directions(direction):
        if raises:
            raise RuntimeError("out of memory")
