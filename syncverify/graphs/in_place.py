"""Writes in place that autograd allows, and follows by version counters."""

from __future__ import annotations

import torch

from syncverify.graphs.products import dot


def in_place_on_copy(local: torch.Tensor, constant: torch.Tensor) -> torch.Tensor:
    """Multiply a copy in place."""
    return local.clone().mul_(constant).to(torch.float32).sum()


def in_place_on_views(local: torch.Tensor, constant: torch.Tensor) -> torch.Tensor:
    """Write through views of a copy: autograd rebases the copy's history."""
    copy, constants = local.reshape(-1).clone(), constant.reshape(-1)
    copy[0::2].mul_(constants[0::2])
    copy[1::2].mul_(constants[1::2])
    return copy.to(torch.float32).sum()


def in_place_result_saved(local: torch.Tensor, constant: torch.Tensor) -> torch.Tensor:
    """Save a result that was written in place, at the version that it had then."""
    positive = (local - local.detach() + 1).relu_()
    return dot(positive, constant)


def written_after_use(local: torch.Tensor, constant: torch.Tensor) -> torch.Tensor:
    """Write the parameter itself before backward, which needs no value of it."""
    term = dot(local, constant)
    with torch.no_grad():
        local.detach().add_(0)
    return term
