"""What a micro-batch's forward leaves to whoever runs its backward."""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterable, Mapping
from contextlib import AbstractContextManager
from dataclasses import dataclass

import torch

AsRank = Callable[[], AbstractContextManager[None]]


@dataclass(frozen=True, slots=True)
class Losses:
    """The terms of one micro-batch's loss.

    Attributes:
        terms: Scalars in float32, by name of the parameter that each depends on. Those
            of parameters that need no gradient are left out.
        parameters: The parameters of these terms, by name.
        as_rank: Makes another thread one of this rank's for the length of a block.
    """

    terms: Mapping[str, torch.Tensor]
    parameters: Mapping[str, torch.Tensor]
    as_rank: AsRank

    def total(self) -> torch.Tensor:
        """Sum the terms, by which no gradient changes."""
        return total(self.terms.values())

    def without(self, names: set[str]) -> Losses:
        """Leave out some terms."""
        terms = {name: term for name, term in self.terms.items() if name not in names}
        own = {n: p for n, p in self.parameters.items() if n in terms}
        return Losses(terms, own, self.as_rank)


def total(terms: Iterable[torch.Tensor]) -> torch.Tensor:
    """Sum terms: of all sums this one asks the least of backward, no operator at all."""
    return functools.reduce(torch.add, terms)
