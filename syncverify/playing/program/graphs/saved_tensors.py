"""Tensors that autograd saves: hooks on them, and writes in place that it allows.

Version counters of tensors track the writes.
"""

from __future__ import annotations

import torch
from torch.autograd.graph import save_on_cpu, saved_tensors_hooks

from syncverify.playing.program.graphs.products import dot


def offloaded(local: torch.Tensor, constant: torch.Tensor) -> torch.Tensor:
    """Keep the saved tensors on the host."""
    with save_on_cpu():
        return dot(local, constant)


def compressed(local: torch.Tensor, constant: torch.Tensor) -> torch.Tensor:
    """Keep the saved tensors as bytes, the way a compressor takes them."""
    with saved_tensors_hooks(_pack, _unpack):
        return dot(local, constant)


def _pack(tensor: torch.Tensor) -> tuple[torch.dtype, torch.Size, torch.Tensor]:
    return tensor.dtype, tensor.shape, tensor.reshape(-1).view(torch.uint8)


def _unpack(packed: tuple[torch.dtype, torch.Size, torch.Tensor]) -> torch.Tensor:
    dtype, shape, numbers = packed
    return numbers.view(dtype).reshape(shape)


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
    """Save the result of an operator in place, at its version of that time."""
    positive = (local - local.detach() + 1).relu_()
    return dot(positive, constant)


def written_after_use(local: torch.Tensor, constant: torch.Tensor) -> torch.Tensor:
    """Write the parameter itself before backward, which does not need its value."""
    term = dot(local, constant)
    with torch.no_grad():
        local.detach().add_(0)
    return term
