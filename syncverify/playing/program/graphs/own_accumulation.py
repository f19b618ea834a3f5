"""Gradients that autograd computes and does not accumulate: the training program adds them.

| word | who adds | what autograd accumulates |
|---|---|---|
| `use=fused_accumulation` | a custom function, to `.grad` | zeros |
| `use=fused_main_grad` | a custom function, to `main_grad` | numbers that mean nothing |
| `backward=split_by_hand` | a pipeline's schedule, to `.grad` | nothing |

Source:
    Megatron-Core's `gradient_accumulation_fusion`, in `tensor_parallel/layers.py`;
    `stage_backward_weight` in torch's `torch/distributed/pipelining/_backward.py`.
"""

import functools
from collections.abc import Callable
from typing import Any, Final

import torch
from typing_extensions import override

from syncverify.playing.program.graphs.custom_function import call
from syncverify.playing.program.graphs.losses import Losses, with_input_gradient
from syncverify.playing.program.own_parameters import local_part

# Each element of what `fused_main_grad` returns.
STALE: Final = 7.0


class _AddsByItself(torch.autograd.Function):
    """Hands its gradient to a function, and returns what that returns."""

    @override
    @staticmethod
    def forward(
        ctx: Any,
        local: torch.Tensor,
        constant: torch.Tensor,
        add: Callable[[torch.Tensor], torch.Tensor],
    ) -> torch.Tensor:
        ctx.constant, ctx.add = constant, add
        return local * constant

    @override
    @staticmethod
    def backward(ctx: Any, *gradients: Any) -> Any:
        return ctx.add((gradients[0] * ctx.constant).detach()), None, None


def fused_accumulation(local: torch.Tensor, constant: torch.Tensor) -> torch.Tensor:
    """Have a backward that adds to `.grad`, as a fused matrix product does."""
    return _fused(local, constant, functools.partial(_add_to_grad, _leaf_of(local)))


def fused_main_grad(local: torch.Tensor, constant: torch.Tensor) -> torch.Tensor:
    """Have a backward that adds to `main_grad`, where a synchronizer has made that."""
    add = functools.partial(_add_to_main_grad, _leaf_of(local))
    return _fused(local, constant, add)


def _fused(
    local: torch.Tensor,
    constant: torch.Tensor,
    add: Callable[[torch.Tensor], torch.Tensor],
) -> torch.Tensor:
    product: torch.Tensor = call(_AddsByItself, local, constant, add)
    return product.to(torch.float32).sum()


def _add_to_grad(leaf: torch.Tensor, gradient: torch.Tensor) -> torch.Tensor:
    """Add to `.grad`, where there is one, and return what autograd has to add."""
    if leaf.grad is None:
        return gradient
    local_part(leaf.grad).add_(gradient)
    return torch.zeros_like(gradient)


def _add_to_main_grad(leaf: Any, gradient: torch.Tensor) -> torch.Tensor:
    """Add to `main_grad`, where there is one, and return what autograd has to add."""
    if getattr(leaf, "main_grad", None) is None:
        return gradient
    local_part(leaf.main_grad).add_(gradient)
    leaf.grad_added_to_main_grad = True
    # Megatron returns memory that was not written, and that others may have used before.
    return torch.full_like(gradient, STALE)


def _leaf_of(local: torch.Tensor) -> torch.Tensor:
    """Return the parameter of a local part: the tensor itself, or the DTensor around it."""
    if local.grad_fn is None:
        return local
    accumulator: Any = local.grad_fn.next_functions[0][0]
    leaf: torch.Tensor = accumulator.variable
    return leaf


def split_by_hand(losses: Losses) -> None:
    """Compute the input gradient first; then compute the parameters' gradients, and add them."""
    edges, ones = with_input_gradient(losses)
    # The last layer first, as backward goes.
    parameters = [*losses.parameters.values()][::-1]
    gradients = torch.autograd.grad(edges, parameters, ones)
    for parameter, gradient in zip(parameters, gradients, strict=True):
        with torch.no_grad():
            _add(parameter, gradient)
        losses.mark_ready(parameter)


def _add(parameter: torch.Tensor, gradient: torch.Tensor) -> None:
    """Add a gradient to `.grad`; the first one becomes `.grad`."""
    if parameter.grad is not None:
        local_part(parameter.grad).add_(local_part(gradient))
        return
    parameter.grad = gradient.to(parameter.grad_dtype or parameter.dtype)
