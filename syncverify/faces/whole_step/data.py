"""Data that shows faults: variations of the training, each played beside the plain one.

Some change the batch, and others gradients: to no numbers, or to one number as each element.
"""

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from fnmatch import fnmatchcase
from typing import Any, Final
from unittest.mock import patch

import torch
from torch import nn
from torch.distributed.tensor import DTensor
from torch.utils._pytree import tree_map
from typing_extensions import override

from syncverify.errors import UsageError
from syncverify.faces.whole_step.training import (
    ALL_ONES,
    LOCAL_OVERFLOW,
    NAN,
    OVERFLOW,
    PADDING,
    UNEQUAL_TOKENS,
    Training,
    Variation,
)
from syncverify.judge.whole_step.differences import OneRank
from syncverify.judge.whole_step.layout import Layout
from syncverify.judge.whole_step.shards import local_part
from syncverify.judge.whole_step.values import Quantity

Weights = torch.Tensor


@dataclass(frozen=True, slots=True)
class UnequalTokens(Variation):
    """The first rows have few tokens that count, and the last rows have all."""

    key: str
    word: str = UNEQUAL_TOKENS

    @override
    def changed(self, batch: Any) -> Any:
        """Return the batch with weights of 0 in it."""
        return _weighted(batch, self.key, _unequal)


@dataclass(frozen=True, slots=True)
class EmptyPart(Variation):
    """The last micro-batch of the last rank is padding: its weights are 0."""

    key: str
    num_parts: int  # number of micro-batches of all ranks
    word: str = PADDING

    @override
    def changed(self, batch: Any) -> Any:
        """Return the batch with weights of 0 in its last rows."""
        return _weighted(batch, self.key, self._padded)

    def _padded(self, weights: Weights) -> Weights:
        kept = len(weights) - len(weights) // self.num_parts
        return weights * (torch.arange(len(weights)) < kept).view(_column(weights))


@dataclass(frozen=True, slots=True)
class NotFinite(Variation):
    """The last element of a gradient is infinity or NaN in the first step, before it is unscaled.

    Where the parameter is split, one rank has the element, and all ranks have to skip the step.
    """

    name: str
    value: float
    # Whether the scaled loss is infinity instead, on the ranks that have the last part of the
    # batch. Other ranks have finite gradients until these are reduced.
    is_local: bool = False

    @property
    @override
    def word(self) -> str:
        """A short name."""
        if self.is_local:
            return LOCAL_OVERFLOW
        return NAN if math.isnan(self.value) else OVERFLOW


# The fractional part of the golden ratio. Fractional parts of its multiples are far apart.
_APART: Final = 0.6180339887498949


@dataclass(frozen=True, slots=True)
class AllOnes(Variation):
    """Each element of each gradient is one number, so norms are known in closed form."""

    size: float
    # Whether each parameter has another number, up to twice as large.
    are_distinct: bool = False
    word: str = ALL_ONES

    def element(self, index: int) -> float:
        """Return the element of the gradient of a parameter, by its index."""
        return self.size * (1 + (index * _APART) % 1 if self.are_distinct else 1)


def variations(
    training: Training, layout: Layout, reference: OneRank
) -> list[Variation]:
    """Return the variations that a training on a layout can be played with."""
    found, axes = list[Variation](), training.split_axes(layout)
    if training.weights is not None:
        rows = layout.size(axis for axis, dim in axes.items() if dim == 0)
        num_parts = rows * training.num_micro_batches
        found.append(UnequalTokens(training.weights))
        found.append(EmptyPart(training.weights, num_parts))
    gradients = reference.tensors(Quantity.STEPPED, 0).items()
    names = [name for name, gradient in gradients if gradient is not None]
    scales = bool(reference.tensors(Quantity.SCALE, 0))
    if scales and (name := _last_shard(training, names)):
        found += [NotFinite(name, value) for value in (math.inf, math.nan)]
        is_split = layout.size(axes) > 1
        found += [NotFinite(name, math.inf, is_local=True)] if is_split else []
    return found


def _last_shard(training: Training, names: Sequence[str]) -> str | None:
    """Return the last parameter that is a plain shard; the last of all if none is."""
    patterns = () if callable(training.own) else (*training.own,)
    shards = [n for n in names if any(fnmatchcase(n, each) for each in patterns)]
    return next(reversed(shards or names), None)


def _weighted(batch: Any, key: str, change: Callable[[Weights], Weights]) -> Any:
    if not isinstance(batch, Mapping) or not isinstance(batch.get(key), torch.Tensor):
        raise UsageError(
            f"expected batch() to return a dict with a tensor {key!r}, the weight of each "
            f"token, as weights={key!r} says"
        )
    weights = batch[key]
    return {**batch, key: change(weights.cpu()).to(weights)}


def _unequal(weights: Weights) -> Weights:
    """Return weights of which the first rows keep fewer than the last ones."""
    rows = torch.arange(len(weights))
    if weights.dim() == 1 or weights.shape[1] == 1:
        is_kept = (rows >= len(rows) // 2) | (rows % 2 == 0)
        return weights * is_kept.view(_column(weights))
    width = weights.shape[1]
    lengths = ((rows + 1) * width // len(rows)).clamp(min=1)
    is_token = torch.arange(width) < lengths.unsqueeze(1)
    return weights * is_token.view(*is_token.shape, *[1] * (weights.dim() - 2))


def _column(weights: Weights) -> list[int]:
    return [len(weights), *[1] * (weights.dim() - 1)]


class Poison:
    """Make a rank's gradients no numbers: by an element, or by an infinite loss.

    The element is the last one of a parameter's gradient, when the scaler unscales. The scaled loss
    makes all gradients of the rank no numbers. The last rank has the last shard of an ordinary tensor
    that is split, or the last part of the batch, whose loss is infinite.
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
        local = local_part(parameter.grad)
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
    calls the hooks for added gradients then. The index of a name among those of all ranks decides
    about its number. The scaler of the loss will divide gradients.
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
