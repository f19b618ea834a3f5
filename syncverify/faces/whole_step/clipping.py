"""Clipping by one norm over parameters of several meshes, with torch's own functions."""

from __future__ import annotations

from collections.abc import Iterable

import torch
from torch import nn
from torch.distributed.tensor import DTensor


def clip_over_meshes(
    parameters: Iterable[nn.Parameter], max_norm: float
) -> torch.Tensor:
    """Clip gradients in place, and return their norm.

    `torch.nn.utils.clip_grad_norm_` refuses DTensors of different meshes, as tensor
    parallelism of some layers makes them.

    Args:
        parameters: Parameters, of any meshes.
        max_norm: Largest norm of all their gradients.

    Returns:
        The norm before clipping, a scalar.
    """
    by_mesh = dict[object, list[nn.Parameter]]()
    for each in parameters:
        if each.grad is not None:
            mesh = each.grad.device_mesh if isinstance(each.grad, DTensor) else None
            by_mesh.setdefault(mesh, []).append(each)
    norms = [_norm(listed) for listed in by_mesh.values()]
    total = torch.linalg.vector_norm(torch.stack(norms)) if norms else torch.zeros(())
    for listed in by_mesh.values():
        nn.utils.clip_grads_with_norm_(listed, max_norm, total)
    return total


def _norm(parameters: list[nn.Parameter]) -> torch.Tensor:
    norm = nn.utils.get_total_norm(
        [each.grad for each in parameters if each.grad is not None]
    )
    if isinstance(norm, DTensor):
        whole: torch.Tensor = norm.full_tensor()
        return whole
    return norm
