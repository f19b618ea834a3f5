"""Gradients of other data: no numbers, or one number as each element."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from typing import Any
from unittest.mock import patch

import torch
from torch import nn
from torch.distributed.tensor import DTensor
from torch.utils._pytree import tree_map

from syncverify.faces.whole_step.data import AllOnes, NotFinite


class Poison:
    """Make a rank's gradients no numbers: by an element, or by an infinite loss.

    The element is the last one of a parameter's gradient, when the scaler unscales. The scaled loss
    makes all gradients of the rank no numbers.

    Args:
        variation: The parameter and the value, or the infinite loss.
        parameters: Parameters of this rank, by name.
        is_last: Whether this rank has the last shard of an ordinary tensor that is split; or the
            last part of the batch, whose loss is infinite.
    """

    def __init__(
        self,
        variation: NotFinite,
        parameters: Mapping[str, nn.Parameter],
        *,
        is_last: bool,
    ) -> None:
        self.is_called = False  # whether the scaler unscaled
        self.has_infinite_loss = False
        self._variation = variation
        self._is_last = is_last
        parameter = None if variation.is_local else parameters.get(variation.name)
        self._parameter = parameter
        self._index = None if parameter is None else _last_index(parameter)

    @contextmanager
    def placed(self, scaler: Any) -> Iterator[None]:
        """Place the values when a scaler is called within a block: one may be of one optimizer."""
        scale, unscale = scaler.scale, scaler.unscale_

        def scaled(outputs: Any) -> Any:
            self.has_infinite_loss = self._is_last
            factor = math.inf if self._is_last else 1.0
            return tree_map(lambda each: each * factor, scale(outputs))

        def unscaled(*args: Any, **kwargs: Any) -> Any:
            if not self.is_called:
                self.is_called = True
                self._place()
            return unscale(*args, **kwargs)

        with ExitStack() as stack:
            stack.enter_context(patch.object(scaler, "unscale_", unscaled))
            if self._variation.is_local:
                stack.enter_context(patch.object(scaler, "scale", scaled))
            yield

    @torch.no_grad()
    def _place(self) -> None:
        parameter = self._parameter
        if parameter is None or parameter.grad is None or self._index is None:
            return
        grad = parameter.grad
        local = grad.to_local() if isinstance(grad, DTensor) else grad
        if self._is_last and local.numel():
            index = torch.unravel_index(torch.tensor(self._index), local.shape)
            local[index] = self._variation.value


@torch.no_grad()
def _last_index(parameter: nn.Parameter) -> int | None:
    """Return where this rank has the last element of a parameter; None where it has not."""
    if not isinstance(parameter, DTensor):
        return parameter.numel() - 1
    local = parameter.to_local()
    # The numbers of a rank are a range of its own, so a number tells which rank has the element.
    first = torch.distributed.get_rank() * parameter.numel()
    numbers = torch.arange(local.numel(), device=local.device) + first
    placed = DTensor.from_local(
        numbers.view(local.shape),
        parameter.device_mesh,
        parameter.placements,
        run_check=False,
        shape=parameter.shape,
        stride=parameter.stride(),
    )
    index = int(placed.full_tensor().flatten()[-1]) - first
    return index if 0 <= index < local.numel() else None


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
            if parameter.requires_grad:
                element = variation.element(index.get(name, 0)) * scale
                stack.enter_context(_constant_gradient(parameter, element))
        yield


@contextmanager
def _constant_gradient(parameter: nn.Parameter, element: float) -> Iterator[None]:
    is_placed = False

    def before(gradient: torch.Tensor) -> torch.Tensor:
        nonlocal is_placed
        is_placed = True
        return torch.full_like(gradient, element)

    def after(parameter: torch.Tensor) -> None:
        if not is_placed and parameter.grad is not None:  # set without autograd
            parameter.grad = torch.full_like(parameter.grad, element)

    hooks = (
        parameter.register_hook(before),
        parameter.register_post_accumulate_grad_hook(after),
    )
    try:
        yield
    finally:
        for each in hooks:
            each.remove()
