"""One parameter in several places of one graph."""

from __future__ import annotations

import functools

import torch

from syncverify.graphs.products import dot, halves, parts

_MANY = 5


def twice(local: torch.Tensor, constant: torch.Tensor) -> torch.Tensor:
    """Multiply it by both halves of the constant."""
    one, other = halves(constant)
    return dot(local, one) + dot(local, other)


def many_times(local: torch.Tensor, constant: torch.Tensor) -> torch.Tensor:
    """Multiply it by many parts of the constant."""
    terms = [dot(local, part) for part in parts(constant, _MANY)]
    return functools.reduce(torch.add, terms)


def expanded(local: torch.Tensor, constant: torch.Tensor) -> torch.Tensor:
    """Repeat it without a copy; backward sums over the repetitions."""
    constants = torch.stack(halves(constant))
    return dot(local.unsqueeze(0).expand(constants.shape), constants)


def gathered(local: torch.Tensor, constant: torch.Tensor) -> torch.Tensor:
    """Look each element up twice, as an embedding does."""
    flat = local.reshape(-1)
    rows = torch.arange(flat.numel(), device=flat.device).repeat(2)
    return dot(flat[rows], torch.cat([half.reshape(-1) for half in halves(constant)]))


def in_slices(local: torch.Tensor, constant: torch.Tensor) -> torch.Tensor:
    """Use views of it, each with elements of its own."""
    flat, constants = local.reshape(-1), constant.reshape(-1)
    return dot(flat[0::2], constants[0::2]) + dot(flat[1::2], constants[1::2])


def unbound(local: torch.Tensor, constant: torch.Tensor) -> torch.Tensor:
    """Use each element as a view of its own: one node with many outputs."""
    flat = local.reshape(-1)
    if not flat.numel():
        return dot(local, constant)
    return dot(torch.stack(torch.unbind(flat)), constant.reshape(-1))


def restrided(local: torch.Tensor, constant: torch.Tensor) -> torch.Tensor:
    """Use it as a view with strides of the caller's, backwards in the first dim."""
    flat = local.reshape(-1)
    view = flat.as_strided((2, flat.numel()), (0, 1))
    return dot(view, torch.stack([half.reshape(-1) for half in halves(constant)]))
