"""Gradients that are no numbers: put there when the scaler unscales, or by an infinite loss."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager
from typing import Any, Protocol
from unittest.mock import patch

import torch
from torch import nn
from torch.distributed.tensor import DTensor
from torch.utils._pytree import tree_map

from syncverify.faces.whole_step.data import NotFinite
from syncverify.judge.whole_step.differences import own_axes
from syncverify.judge.whole_step.layout import Own


class Poisoned(Protocol):
    """Values that are no numbers, in one step of a rank."""

    is_called: bool
    has_infinite_loss: bool

    def placed(self, scaler: Any) -> AbstractContextManager[None]:
        """Place the values when a scaler is called within a block."""


class InfiniteLoss:
    """Make the scaled loss infinity on some ranks, so that their own gradients are no numbers.

    Args:
        is_here: Whether this rank is one of them.
    """

    def __init__(self, *, is_here: bool) -> None:
        self._factor = math.inf if is_here else 1.0
        self.is_called = False
        self.has_infinite_loss = False

    @contextmanager
    def placed(self, scaler: Any) -> Iterator[None]:
        """Make each loss infinity that a scaler scales within a block: one may be of one optimizer."""
        scale, unscale = scaler.scale, scaler.unscale_

        def scaled(outputs: Any) -> Any:
            self.has_infinite_loss = self._factor == math.inf
            return tree_map(lambda each: each * self._factor, scale(outputs))

        def unscaled(*args: Any, **kwargs: Any) -> Any:
            self.is_called = True
            return unscale(*args, **kwargs)

        with (
            patch.object(scaler, "scale", scaled),
            patch.object(scaler, "unscale_", unscaled),
        ):
            yield


class Poison:
    """Put a value into the last element of a parameter's gradient.

    Args:
        variation: The parameter, and the value.
        parameters: Parameters of this rank, by name.
        is_last: Whether this rank has the last shard of an ordinary tensor that is split.

    Attributes:
        has_infinite_loss: False: the loss stays as it is.
    """

    def __init__(
        self,
        variation: NotFinite,
        parameters: Mapping[str, nn.Parameter],
        *,
        is_last: bool,
    ) -> None:
        self._value = variation.value
        self._parameter = parameters.get(variation.name)
        self._index = None if self._parameter is None else _last_index(self._parameter)
        self._is_last = is_last
        self.is_called = False
        self.has_infinite_loss = False

    @contextmanager
    def placed(self, scaler: Any) -> Iterator[None]:
        """Place the value when a scaler unscales within a block."""
        original = scaler.unscale_

        def unscale(*args: Any, **kwargs: Any) -> Any:
            if not self.is_called:
                self.is_called = True
                self._place()
            return original(*args, **kwargs)

        scaler.unscale_ = unscale
        try:
            yield
        finally:
            del scaler.unscale_

    @torch.no_grad()
    def _place(self) -> None:
        parameter = self._parameter
        if parameter is None or parameter.grad is None or self._index is None:
            return
        grad = parameter.grad
        local = grad.to_local() if isinstance(grad, DTensor) else grad
        if self._is_last and local.numel():
            local[torch.unravel_index(torch.tensor(self._index), local.shape)] = (
                self._value
            )


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


def is_last_shard(
    name: str, own: Own, coordinate: Mapping[str, int], sizes: Mapping[str, int]
) -> bool:
    """Tell whether a rank has the last shard of an ordinary tensor, or all of it."""
    return all(
        coordinate[axis] == sizes[axis] - 1
        for axis in own_axes(name, own)
        if axis in sizes
    )
