"""Data that shows faults: variations of the training, each played beside the plain one."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from fnmatch import fnmatchcase
from typing import Any, Final

import torch

from syncverify.errors import UsageError
from syncverify.faces.whole_step.data_words import (
    ALL_ONES,
    LOCAL_OVERFLOW,
    NAN,
    OVERFLOW,
    PADDING,
    UNEQUAL_TOKENS,
)
from syncverify.faces.whole_step.training import Training, Variation

Weights = torch.Tensor


@dataclass(frozen=True, slots=True)
class UnequalTokens(Variation):
    """The first rows have few tokens that count, and the last rows have all."""

    key: str
    word: str = UNEQUAL_TOKENS

    def changed(self, batch: Any) -> Any:
        """Return the batch with weights of 0 in it."""
        return _weighted(batch, self.key, _unequal)


@dataclass(frozen=True, slots=True)
class EmptyPart(Variation):
    """The last micro-batch of the last rank is padding: its weights are 0."""

    key: str
    num_parts: int  # number of micro-batches of all ranks
    word: str = PADDING

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
    training: Training,
    num_parts: int,
    names: Iterable[str],
    *,
    scales: bool,
    is_split: bool,
) -> list[Variation]:
    """Return the variations that a training can be played with.

    Args:
        training: The training.
        num_parts: Number of micro-batches of all ranks.
        names: The parameters that have a gradient.
        scales: Whether a scaler multiplies the loss.
        is_split: Whether axes split the batch over ranks.
    """
    found = list[Variation]()
    if training.weights is not None:
        found += [
            UnequalTokens(training.weights),
            EmptyPart(training.weights, num_parts),
        ]
    if scales and (name := _last_shard(training, names)):
        found += [NotFinite(name, value) for value in (math.inf, math.nan)]
        found += [NotFinite(name, math.inf, is_local=True)] if is_split else []
    return found


def _last_shard(training: Training, names: Iterable[str]) -> str | None:
    """Return the last parameter that is a plain shard; the last of all if none is."""
    listed = [*names]
    patterns = () if callable(training.own) else (*training.own,)
    shards = [n for n in listed if any(fnmatchcase(n, each) for each in patterns)]
    return next(reversed(shards or listed), None)


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
