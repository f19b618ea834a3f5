"""Gradients with one number as elements, put where autograd makes them."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from typing import Any

import torch
from torch import nn

from syncverify.faces.whole_step.data import AllOnes


@contextmanager
def constant_gradients(
    variation: AllOnes,
    parameters: Mapping[str, nn.Parameter],
    names: Sequence[str],
    scaler: Any,
) -> Iterator[None]:
    """Make each element of a gradient one number within a block.

    The number takes the place of a gradient before autograd adds it to `.grad`, so reducing,
    unscaling and clipping come after it. FSDP2 sets the gradients of shards itself, and
    calls the hooks for added gradients then.

    Args:
        variation: The numbers.
        parameters: Parameters of this rank, by name.
        names: Names of all parameters; the index of a name decides about its number.
        scaler: The scaler of the loss, which will divide gradients; None for none.
    """
    scale = float(scaler.get_scale()) if hasattr(scaler, "get_scale") else 1.0
    index = {name: number for number, name in enumerate(dict.fromkeys(names))}
    with ExitStack() as stack:
        for name, parameter in parameters.items():
            if not parameter.requires_grad:
                continue
            constant = _Constant(variation.element(index.get(name, 0)) * scale)
            for handle in (
                parameter.register_hook(constant.before),
                parameter.register_post_accumulate_grad_hook(constant.after),
            ):
                stack.callback(handle.remove)
        yield


class _Constant:
    def __init__(self, element: float) -> None:
        self._element = element
        self._is_placed = False

    def before(self, gradient: torch.Tensor) -> torch.Tensor:
        """Return the tensor that autograd adds to `.grad` in the place of a gradient."""
        self._is_placed = True
        return torch.full_like(gradient, self._element)

    def after(self, parameter: torch.Tensor) -> None:
        """Replace a gradient that was set without autograd."""
        if not self._is_placed and parameter.grad is not None:
            parameter.grad = torch.full_like(parameter.grad, self._element)
