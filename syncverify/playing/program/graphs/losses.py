"""The losses of a micro-batch: terms that a function of `BACKWARDS` differentiates."""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterable, Mapping
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass

import torch

# Called on another thread of a rank.
AsThread = Callable[[], AbstractContextManager[None]]
# Called on a thread of the rank, at the time of a backward: by then the dispatch modes that
# record are on.
AsRank = Callable[[], AsThread]
# Called with parameters.
MarkReady = Callable[..., None]


def not_told(*_: torch.Tensor) -> None:
    """Tell nothing: the synchronizer looks at `.grad` when it is waited for."""


def one_thread() -> AsThread:
    """Return a context for other threads of a program that has no ranks."""
    return nullcontext


@dataclass(frozen=True, slots=True)
class Losses:
    """The terms of one micro-batch's loss.

    Attributes:
        terms: Scalars in float32, by name of the parameter that each depends on; by another
            name where it depends on none, or on all. Terms of frozen parameters are left out.
        mark_ready: Tells the synchronizer that gradients of parameters were added to `.grad`
            by hand.
    """

    terms: Mapping[str, torch.Tensor]
    parameters: Mapping[str, torch.Tensor]
    as_rank: AsRank
    mark_ready: MarkReady = not_told

    def total(self) -> torch.Tensor:
        """Sum the terms, which changes no gradient."""
        return total(self.terms.values())

    def without(self, names: set[str]) -> Losses:
        """Leave out some terms."""
        terms = {name: term for name, term in self.terms.items() if name not in names}
        parameters = {name: p for name, p in self.parameters.items() if name in terms}
        return Losses(terms, parameters, self.as_rank, self.mark_ready)


def total(terms: Iterable[torch.Tensor]) -> torch.Tensor:
    """Sum terms by additions: the backward of an addition queues no operator."""
    return functools.reduce(torch.add, terms)
