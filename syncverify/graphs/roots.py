"""Where backward starts, where it ends, and how often it runs over a graph."""

from __future__ import annotations

import torch

from syncverify.graphs.losses import Losses


def plain(losses: Losses) -> None:
    """Run `backward()` on the sum of all terms."""
    losses.total().backward()


def inputs(losses: Losses) -> None:
    """Name the parameters that get gradients."""
    losses.total().backward(inputs=[*losses.parameters.values()])


def inputs_in_turn(losses: Losses) -> None:
    """Run over one graph for each parameter by itself, and keep the graph for the next."""
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
    """Bring half of the gradient by each of two backwards over one graph."""
    total = losses.total()
    half = torch.full_like(total, 0.5)
    total.backward(half, retain_graph=True)
    total.backward(half)
