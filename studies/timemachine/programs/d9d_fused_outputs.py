"""d9d's split backward of a fused projection: one node of the graph has two outputs."""

from __future__ import annotations

from random import Random
from typing import Any

import torch
from d9d.pipelining.infra.stage.splitgrad import (
    stage_backward_input,
    stage_backward_weight,
)
from typing_extensions import override

from studies.timemachine.comparing import check_equal


def draw(random: Random) -> dict[str, Any]:
    """Draw sizes, and the factor of the second output in the loss."""
    return {
        "ranks": random.randint(1, 2),
        "seed": random.randrange(1000),
        "rows": random.randint(1, 4),
        "width": random.randint(1, 6),
        "weight_of_up": random.choice([0.5, 2.0, 3.0]),
    }


class GateAndUp(torch.autograd.Function):
    """Two projections of one input in one node, as fused kernels have them."""

    @staticmethod
    @override
    def forward(ctx: Any, x: Any, gate: Any, up: Any) -> Any:
        """Return both projections."""
        ctx.save_for_backward(x, gate, up)
        return x @ gate, x @ up

    @staticmethod
    @override
    def backward(ctx: Any, of_gate: Any, of_up: Any) -> Any:
        """Return the gradients of the input and of both weights."""
        x, gate, up = ctx.saved_tensors
        return of_gate @ gate.T + of_up @ up.T, x.T @ of_gate, x.T @ of_up


def program(
    rank: int, *, seed: int, rows: int, width: int, weight_of_up: float
) -> None:
    """Compare the gradients of a split backward with those of one backward."""
    made = torch.Generator().manual_seed(seed + rank)
    x, gate, up = (
        torch.randn(shape, generator=made, requires_grad=True)
        for shape in ((rows, width), (width, width), (width, width))
    )

    def output() -> Any:
        gated, raised = GateAndUp.apply(x, gate, up)  # type: ignore[no-untyped-call]
        return (gated.sigmoid() * raised * weight_of_up).sum()

    expected = torch.autograd.grad(output(), [x, gate, up])
    y = output()
    result = stage_backward_input([y], None, [x], iter([gate, up]))
    stage_backward_weight(iter([gate, up]), result.param_groups)
    assert result.input_grads[0] is not None
    assert gate.grad is not None
    assert up.grad is not None
    observed = (result.input_grads[0], gate.grad, up.grad)
    for name, seen, right in zip(
        ("input", "gate", "up"), observed, expected, strict=True
    ):
        check_equal(f"gradient of {name!r} on rank {rank}", seen, right)
