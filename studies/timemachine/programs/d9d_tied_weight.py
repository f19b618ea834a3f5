"""d9d's split backward of a stage that uses one weight in several layers."""

from __future__ import annotations

from random import Random
from typing import Any

import torch
from d9d.pipelining.infra.stage.splitgrad import (
    stage_backward_input,
    stage_backward_weight,
)

from studies.timemachine.comparing import check_equal


def draw(random: Random) -> dict[str, Any]:
    """Draw sizes, and the number of layers that share the weight."""
    return {
        "ranks": random.randint(1, 2),
        "seed": random.randrange(1000),
        "rows": random.randint(1, 4),
        "width": random.randint(1, 6),
        "layers": random.randint(1, 3),
    }


def program(rank: int, *, seed: int, rows: int, width: int, layers: int) -> None:
    """Compare the gradients of a split backward with those of one backward."""
    made = torch.Generator().manual_seed(seed + rank)
    x = torch.randn(rows, width, generator=made, requires_grad=True)
    weight = torch.randn(width, width, generator=made, requires_grad=True)

    def output() -> torch.Tensor:
        y: torch.Tensor = x
        for _ in range(layers):
            y = (y @ weight).tanh()
        return y.sum()

    expected = torch.autograd.grad(output(), [x, weight])
    y = output()
    result = stage_backward_input([y], None, [x], iter([weight]))
    stage_backward_weight(iter([weight]), result.param_groups)
    assert result.input_grads[0] is not None
    assert weight.grad is not None
    check_equal(
        f"gradient of 'input' on rank {rank}", result.input_grads[0], expected[0]
    )
    check_equal(f"gradient of 'weight' on rank {rank}", weight.grad, expected[1])
