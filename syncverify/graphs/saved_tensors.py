"""Hooks on what autograd saves between forward and backward."""

from __future__ import annotations

import torch
from torch.autograd.graph import save_on_cpu, saved_tensors_hooks

from syncverify.graphs.products import dot


def offloaded(local: torch.Tensor, constant: torch.Tensor) -> torch.Tensor:
    """Keep what is saved on the host."""
    with save_on_cpu():
        return dot(local, constant)


def compressed(local: torch.Tensor, constant: torch.Tensor) -> torch.Tensor:
    """Keep what is saved as whole numbers, which loses nothing of our constants."""
    with saved_tensors_hooks(_pack, _unpack):
        return dot(local, constant)


def _pack(tensor: torch.Tensor) -> tuple[torch.dtype, torch.Tensor]:
    return tensor.dtype, tensor.to(torch.int32)


def _unpack(packed: tuple[torch.dtype, torch.Tensor]) -> torch.Tensor:
    dtype, tensor = packed
    return tensor.to(dtype)
