"""Roots and inputs of backward, several backwards over one graph, and a split backward.

Pipelines without bubbles split backward. A stage computes its input gradients first, and
sends them to the stage before. It computes its weight gradients later, while other stages
work.

Source:
    Qi et al., "Zero Bubble Pipeline Parallelism" (ICLR 2024), section 2; torch's
    `torch/distributed/pipelining/_backward.py` splits backward in the same way.
"""

from __future__ import annotations

import torch
from torch.autograd.graph import GradientEdge, get_gradient_edge

from syncverify.playing.program.graphs.losses import Losses


def plain(losses: Losses) -> None:
    """Run `backward()` on the sum of all terms."""
    losses.total().backward()


def inputs(losses: Losses) -> None:
    """Name the parameters that get gradients."""
    losses.total().backward(inputs=[*losses.parameters.values()])


def inputs_in_turn(losses: Losses) -> None:
    """Run one backward for each parameter over one graph, kept for the next."""
    total, (*others, last) = losses.total(), losses.parameters.values()
    for parameter in others:
        total.backward(inputs=[parameter], retain_graph=True)
    total.backward(inputs=[last])


def several_roots(losses: Losses) -> None:
    """Start from each term."""
    torch.autograd.backward([*losses.terms.values()])


def grad_tensors(losses: Losses) -> None:
    """Start from half of each term, with a gradient of 2."""
    roots = [term / 2 for term in losses.terms.values()]
    torch.autograd.backward(roots, [torch.full_like(root, 2) for root in roots])


def grad_beside(losses: Losses) -> None:
    """Ask for gradients without accumulating them, then run backward."""
    total = losses.total()
    torch.autograd.grad(total, [*losses.parameters.values()], retain_graph=True)
    total.backward()


def twice_over_one_graph(losses: Losses) -> None:
    """Run two backwards over one graph, each with half of the gradient."""
    total = losses.total()
    half = torch.full_like(total, 0.5)
    total.backward(half, retain_graph=True)
    total.backward(half)


def split(losses: Losses) -> None:
    """Compute the input gradient first, and the parameters' gradients afterwards."""
    edges, ones = with_input_gradient(losses)
    torch.autograd.backward(edges, ones, inputs=[*losses.parameters.values()])


def with_input_gradient(
    losses: Losses,
) -> tuple[list[GradientEdge], list[torch.Tensor]]:
    """Compute the gradient of the input alone, as the first half of a split backward.

    Returns:
        The edges at which the second half starts, and the gradients that enter them.
    """
    terms = [*losses.terms.values()]
    activation = torch.ones((), device=terms[0].device, requires_grad=True)
    outputs = [term * activation for term in terms]
    edges = [get_gradient_edge(term) for term in terms]
    torch.autograd.grad(outputs, activation, _ones(outputs), retain_graph=True)
    return edges, _ones(outputs)


def _ones(outputs: list[torch.Tensor]) -> list[torch.Tensor]:
    return [torch.ones_like(output) for output in outputs]
