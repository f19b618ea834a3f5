"""`torch.autograd.Function` in Python: one use for each feature of its context."""

from __future__ import annotations

from typing import Any

import torch
from torch.autograd.function import once_differentiable
from typing_extensions import override

from syncverify.playing.program.graphs.products import dot


def call(function: type[torch.autograd.Function], *arguments: object) -> Any:
    """Apply a custom function; torch's `apply` has no type annotations."""
    return function.apply(*arguments)


class _Saves(torch.autograd.Function):
    @override
    @staticmethod
    def forward(local: torch.Tensor, constant: torch.Tensor) -> torch.Tensor:
        return local * constant

    @override
    @staticmethod
    def setup_context(ctx: Any, inputs: Any, output: Any) -> None:
        ctx.save_for_backward(inputs[1])

    @override
    @staticmethod
    def backward(ctx: Any, *gradients: Any) -> Any:
        (constant,) = ctx.saved_tensors
        return gradients[0] * constant, None


class _MarksDirty(torch.autograd.Function):
    @override
    @staticmethod
    def forward(ctx: Any, local: torch.Tensor, constant: torch.Tensor) -> torch.Tensor:
        ctx.constant = constant
        ctx.mark_dirty(local)
        return local.mul_(constant)

    @override
    @staticmethod
    def backward(ctx: Any, *gradients: Any) -> Any:
        return gradients[0] * ctx.constant, None


class _NotDifferentiable(torch.autograd.Function):
    @override
    @staticmethod
    def forward(ctx: Any, local: torch.Tensor, constant: torch.Tensor) -> Any:
        ctx.constant = constant
        copy = local.clone()
        ctx.mark_non_differentiable(copy)
        return local * constant, copy

    @override
    @staticmethod
    def backward(ctx: Any, *gradients: Any) -> Any:
        return gradients[0] * ctx.constant, None


class _KeepsNone(torch.autograd.Function):
    @override
    @staticmethod
    def forward(ctx: Any, local: torch.Tensor, constant: torch.Tensor) -> Any:
        ctx.constant = constant
        ctx.set_materialize_grads(False)
        return local * constant, local * 2

    @override
    @staticmethod
    def backward(ctx: Any, *gradients: Any) -> Any:
        of_product, of_unused = gradients
        assert of_unused is None, "an unused output has no gradient"
        return of_product * ctx.constant, None


class _AsksNeedsInputGrad(torch.autograd.Function):
    @override
    @staticmethod
    def forward(ctx: Any, local: torch.Tensor, constant: torch.Tensor) -> torch.Tensor:
        ctx.constant, ctx.local = constant, local.detach()
        return local * constant

    @override
    @staticmethod
    def backward(ctx: Any, *gradients: Any) -> Any:
        factors = (ctx.constant, ctx.local)
        return tuple(
            gradients[0] * factor if needed else None
            for factor, needed in zip(factors, ctx.needs_input_grad, strict=True)
        )


class _OnceDifferentiable(torch.autograd.Function):
    @override
    @staticmethod
    def forward(ctx: Any, local: torch.Tensor, constant: torch.Tensor) -> torch.Tensor:
        ctx.save_for_backward(constant)
        return local * constant

    @override
    @staticmethod
    @once_differentiable
    def backward(ctx: Any, gradient: torch.Tensor) -> Any:
        return gradient * ctx.saved_tensors[0], None


class _NoGradient(torch.autograd.Function):
    @override
    @staticmethod
    def forward(_: Any, local: torch.Tensor) -> torch.Tensor:
        return local.clone()

    @override
    @staticmethod
    def backward(_: Any, *gradients: Any) -> Any:
        return None


def saves_for_backward(local: torch.Tensor, constant: torch.Tensor) -> torch.Tensor:
    """Save the constant in `setup_context`."""
    return _sum(call(_Saves, local, constant))


def marks_dirty(local: torch.Tensor, constant: torch.Tensor) -> torch.Tensor:
    """Write an input in place, and mark it as dirty."""
    return _sum(call(_MarksDirty, local.clone(), constant))


def non_differentiable(local: torch.Tensor, constant: torch.Tensor) -> torch.Tensor:
    """Return a second output that has no gradient, and use that output."""
    product, copy = call(_NotDifferentiable, local, constant)
    return _sum(product) + _sum(copy)


def unmaterialized(local: torch.Tensor, constant: torch.Tensor) -> torch.Tensor:
    """Get None instead of zeros as the gradient of an unused output."""
    product, _ = call(_KeepsNone, local, constant)
    return _sum(product)


def needs_input_grad(local: torch.Tensor, constant: torch.Tensor) -> torch.Tensor:
    """Compute only the gradients that the engine needs."""
    return _sum(call(_AsksNeedsInputGrad, local, constant))


def differentiable_once(local: torch.Tensor, constant: torch.Tensor) -> torch.Tensor:
    """Have a backward that cannot be differentiated."""
    return _sum(call(_OnceDifferentiable, local, constant))


def undefined_gradient(local: torch.Tensor) -> torch.Tensor:
    """Return a scalar that depends on a tensor by a gradient that is undefined."""
    result: torch.Tensor = _ReturnsNone.apply(local)  # type: ignore[no-untyped-call]
    return result.to(torch.float32).sum()


class _ReturnsNone(torch.autograd.Function):
    @override
    @staticmethod
    def forward(ctx: Any, local: torch.Tensor) -> Any:
        return local * 1

    @override
    @staticmethod
    def backward(ctx: Any, *gradients: Any) -> Any:
        return None


def none_gradient(local: torch.Tensor, constant: torch.Tensor) -> torch.Tensor:
    """Add a term with a backward that returns None for the parameter."""
    return dot(local, constant) + _sum(call(_NoGradient, local))


def _sum(values: Any) -> torch.Tensor:
    total: torch.Tensor = values.to(torch.float32).sum()
    return total
