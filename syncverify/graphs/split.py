"""Backward in two parts, as pipelines without bubbles run it.

Input gradients are sent on at once, and weight gradients are computed while others wait.

Source:
    Qi et al., "Zero Bubble Pipeline Parallelism" (ICLR 2024), section 2; torch's
    `torch/distributed/pipelining/_backward.py` does it likewise.
"""

from __future__ import annotations

import torch
from torch.autograd.graph import get_gradient_edge

from syncverify.graphs.losses import Losses


def split(losses: Losses) -> None:
    """Compute what the stage before needs, and only then the parameters' gradients."""
    terms = [*losses.terms.values()]
    activation = torch.ones((), device=terms[0].device, requires_grad=True)
    outputs = [term * activation for term in terms]
    edges = [get_gradient_edge(term) for term in terms]
    torch.autograd.grad(outputs, activation, _ones(outputs), retain_graph=True)
    torch.autograd.backward(edges, _ones(outputs), inputs=[*losses.parameters.values()])


def _ones(outputs: list[torch.Tensor]) -> list[torch.Tensor]:
    return [torch.ones_like(output) for output in outputs]
