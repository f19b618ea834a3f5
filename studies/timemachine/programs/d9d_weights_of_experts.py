"""d9d's weights of the experts that a token chooses."""

from __future__ import annotations

from random import Random
from typing import Any, Final

import torch

from studies.timemachine.comparing import check_equal
from studies.timemachine.programs.loading import file_of

_ROUTER: Final = file_of("d9d", "module/block/moe/router.py")


def draw(random: Random) -> dict[str, Any]:
    """Draw sizes, and whether the weights of a token sum to 1."""
    experts = random.randint(2, 4)
    return {
        "ranks": 1,
        "seed": random.randrange(1000),
        "tokens": random.randint(1, 4),
        "experts": experts,
        "chosen": random.randint(1, experts),
        "sums_to_one": random.random() < 0.5,
    }


def program(
    rank: int, *, seed: int, tokens: int, experts: int, chosen: int, sums_to_one: bool
) -> None:
    """Compare the weights, and the gradient of the gate, with those of a plain softmax."""
    made = torch.Generator().manual_seed(seed)
    router = _ROUTER.TopKRouter(3, experts, chosen, sums_to_one)
    gate = torch.randn(experts, 3, generator=made)
    router.gate.weight.data.copy_(gate)
    x = torch.randn(tokens, 3, generator=made)
    scale = torch.randn(tokens, chosen, generator=made)
    routed = router(x)
    seen = routed[1] if isinstance(routed, tuple) else routed.selected_probabilities
    gate.requires_grad_()
    right = (x @ gate.T).softmax(1).topk(chosen).values
    if sums_to_one:
        right = right / right.sum(1, keepdim=True)
    check_equal(f"weights of experts on rank {rank}", seen, right)
    (of_gate,) = torch.autograd.grad((seen * scale).sum(), [router.gate.weight])
    (expected,) = torch.autograd.grad((right * scale).sum(), [gate])
    check_equal(f"gradient of the gate on rank {rank}", of_gate, expected)
