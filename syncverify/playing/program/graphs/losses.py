"""The losses of a micro-batch: terms that a function of `BACKWARDS` differentiates.

A term is a product with a constant. All constants are integers, and no part is larger than the
whole. A dtype that holds the constant exactly therefore holds each part, and their sum in any
order.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterable, Mapping
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass

import torch
from torch.autograd.graph import GradientEdge, get_gradient_edge


def dot(local: torch.Tensor, constant: torch.Tensor) -> torch.Tensor:
    """Return a scalar in float32; its gradient by `local` is exactly the constant."""
    return (local * constant).to(torch.float32).sum()


def halves(constant: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    """Split integers into two of the same sign that differ by at most 1."""
    smaller = (constant / 2).trunc()
    return smaller, constant - smaller


def parts(constant: torch.Tensor, count: int) -> list[torch.Tensor]:
    """Split integers into `count` integers of the same sign."""
    each = (constant / count).trunc()
    return [each] * (count - 1) + [constant - (count - 1) * each]


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
    """The terms of one micro-batch's loss."""

    # Scalars in float32, by name of the parameter that each depends on; by another name
    # where it depends on none, or on all. Terms of frozen parameters are left out.
    terms: Mapping[str, torch.Tensor]
    parameters: Mapping[str, torch.Tensor]
    as_rank: AsRank
    # Tells the synchronizer that gradients of parameters were added to `.grad` by hand.
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


def with_input_gradient(
    losses: Losses,
) -> tuple[list[GradientEdge], list[torch.Tensor]]:
    """Compute the gradient of the input alone, as the first half of a split backward.

    Return the edges at which the second half starts, and the gradients that enter them.
    """
    terms = [*losses.terms.values()]
    activation = torch.ones((), device=terms[0].device, requires_grad=True)
    outputs = [term * activation for term in terms]
    edges = [get_gradient_edge(term) for term in terms]
    torch.autograd.grad(outputs, activation, _ones(outputs), retain_graph=True)
    return edges, _ones(outputs)


def _ones(outputs: list[torch.Tensor]) -> list[torch.Tensor]:
    return [torch.ones_like(output) for output in outputs]
