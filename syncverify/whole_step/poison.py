"""A gradient with an element that is no number, put there when the scaler unscales."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any

import torch
from torch import nn
from torch.distributed.tensor import DTensor

from syncverify.whole_step.data import NotFinite
from syncverify.whole_step.differences import own_axes
from syncverify.whole_step.training import Own


class Poison:
    """Put a value into the last element of a parameter's gradient.

    Args:
        variation: The parameter, and the value.
        parameters: Parameters of this rank, by name.
        is_last: Whether this rank has the last shard of an ordinary tensor that is split.

    Attributes:
        is_called: Whether the scaler unscaled.
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
