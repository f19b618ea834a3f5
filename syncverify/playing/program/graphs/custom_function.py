"""`torch.autograd.Function` in Python: one use for each feature of its context."""

from collections.abc import Callable
from typing import Any, Final

import torch
from torch.autograd.function import once_differentiable
from typing_extensions import override

from syncverify.playing.program.graphs.losses import dot


def call(function: type[torch.autograd.Function], *arguments: object) -> Any:
    """Apply a custom function; torch's `apply` has no type annotations."""
    return function.apply(*arguments)


class _RunsInBackward(torch.autograd.Function):
    @override
    @staticmethod
    def forward(
        ctx: Any, value: torch.Tensor, run: Callable[[], object]
    ) -> torch.Tensor:
        ctx.run = run
        return value.clone()

    @override
    @staticmethod
    def backward(ctx: Any, *gradients: Any) -> Any:
        with torch.enable_grad():
            ctx.run()
        return gradients[0], None


def running_in_backward(value: torch.Tensor, run: Callable[[], object]) -> torch.Tensor:
    """Return a copy of a tensor; its backward calls a function, with gradients enabled."""
    copy: torch.Tensor = call(_RunsInBackward, value, run)
    return copy


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
    return _sum(call(_NoGradient, local))


def none_gradient(local: torch.Tensor, constant: torch.Tensor) -> torch.Tensor:
    """Add a term with a backward that returns None for the parameter."""
    return dot(local, constant) + _sum(call(_NoGradient, local))


def _sum(values: Any) -> torch.Tensor:
    total: torch.Tensor = values.to(torch.float32).sum()
    return total


INTO_ONE_STORAGE: Final = "saves_for_backward/into_one_storage"


class OneStorage:
    """Hands out parts of one tensor, one part for each product that was made.

    A part is handed out once. A second backward over the same graph gets parts of another
    tensor, because autograd keeps those of the first one as gradients.
    """

    def __init__(self) -> None:
        self._ends: list[int] = []
        self._given = set[int]()
        self._whole: torch.Tensor | None = None

    def dot(self, local: torch.Tensor, constant: torch.Tensor) -> torch.Tensor:
        """Return a scalar in float32; its gradient by `local` is the constant, in a part."""
        self._ends.append(self._num_elements + constant.numel())
        return call(_Product, local, constant, self, len(self._ends) - 1)  # type: ignore[no-any-return]

    def write(self, place: int, gradient: torch.Tensor) -> torch.Tensor:
        """Write a gradient into the part of a product; return the part."""
        if self._whole is None or place in self._given:
            self._whole = gradient.new_empty(self._num_elements)
            self._given.clear()
        self._given.add(place)
        end = self._ends[place]
        part = self._whole[end - gradient.numel() : end].view(gradient.shape)
        return part.copy_(gradient)

    @property
    def _num_elements(self) -> int:
        return self._ends[-1] if self._ends else 0


class _Product(torch.autograd.Function):
    @override
    @staticmethod
    def forward(
        ctx: Any,
        local: torch.Tensor,
        constant: torch.Tensor,
        one: OneStorage,
        place: int,
    ) -> torch.Tensor:
        ctx.constant, ctx.one, ctx.place = constant, one, place
        return (local * constant).to(torch.float32).sum()

    @override
    @staticmethod
    def backward(ctx: Any, *gradients: Any) -> Any:
        scaled = (gradients[0] * ctx.constant).to(ctx.constant.dtype)
        return ctx.one.write(ctx.place, scaled), None, None, None


def into_one_storage(local: torch.Tensor, constant: torch.Tensor) -> torch.Tensor:
    """Use a storage of its own: `OneStorage` has the parts of several parameters."""
    return OneStorage().dot(local, constant)
