"""Branches through which no gradient flows, beside one through which it does."""

from __future__ import annotations

import torch

from syncverify.graphs.products import dot


def detached_branch(local: torch.Tensor, constant: torch.Tensor) -> torch.Tensor:
    """Add a product with the detached parameter."""
    return dot(local, constant) + dot(local.detach(), constant)


def no_grad_branch(local: torch.Tensor, constant: torch.Tensor) -> torch.Tensor:
    """Add a product that was computed without a graph."""
    with torch.no_grad():
        value = dot(local, constant)
    return dot(local, constant) + value


def inference_branch(local: torch.Tensor, constant: torch.Tensor) -> torch.Tensor:
    """Add a value that was computed in inference mode."""
    with torch.inference_mode():
        value = dot(local, constant).item()
    return dot(local, constant) + value


def pruned_branch(local: torch.Tensor, constant: torch.Tensor) -> torch.Tensor:
    """Compute what no root depends on, and use one of two outputs of a node."""
    _ = dot(local * 2, constant)
    used, _unused = torch.stack([local, local]).unbind()
    return dot(used, constant)


def masked(local: torch.Tensor, constant: torch.Tensor) -> torch.Tensor:
    """Choose between two products, element by element."""
    chosen = constant % 2 == 0
    zero = torch.zeros_like(local)
    even = torch.where(chosen, local, zero)
    odd = torch.where(chosen, zero, local)
    return dot(even, constant) + dot(odd, constant)
