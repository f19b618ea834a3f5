"""Facts about one parameter: its axes, groups and local gradient."""

from collections.abc import Iterable, Iterator

import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.tensor import DTensor, Replicate

BYTES_PER_MB = 2**20
Groups = tuple[dist.ProcessGroup, ...]


def local(tensor: torch.Tensor) -> torch.Tensor:
    """Return this rank's part, uncopied."""
    with torch.no_grad():
        return tensor.to_local() if isinstance(tensor, DTensor) else tensor


def local_grad(parameter: nn.Parameter) -> torch.Tensor:
    """Return this rank's part of a gradient that is there."""
    assert parameter.grad is not None, "a hook was called, so there is a gradient"
    return local(parameter.grad)


def grad_dtype(parameter: nn.Parameter) -> torch.dtype:
    """Return the dtype of a parameter's gradients."""
    return parameter.grad_dtype or parameter.dtype


def like(parameter: nn.Parameter, part: torch.Tensor) -> torch.Tensor:
    """Wrap a local gradient as the parameter is wrapped."""
    if not isinstance(parameter, DTensor):
        return part
    return DTensor.from_local(
        part,
        parameter.device_mesh,
        parameter.placements,
        run_check=False,
        shape=parameter.shape,
        stride=parameter.stride(),
    )


def reduce_groups(parameter: nn.Parameter) -> Groups:
    """List the process groups over which to sum, one per replicated mesh axis."""
    if not isinstance(parameter, DTensor):
        return ()
    mesh = parameter.device_mesh
    return tuple(
        mesh.get_group(axis)
        for axis, placement in enumerate(parameter.placements)
        if isinstance(placement, Replicate) and mesh.size(axis) > 1
    )


def local_bytes(parameter: nn.Parameter) -> int:
    """Measure this rank's part of the gradient."""
    return local(parameter).numel() * grad_dtype(parameter).itemsize


def slices(
    buffer: torch.Tensor, parameters: Iterable[nn.Parameter]
) -> Iterator[tuple[nn.Parameter, torch.Tensor]]:
    """Pair parameters with their parts of a flat buffer."""
    start = 0
    for parameter in parameters:
        part = local(parameter)
        yield parameter, buffer[start : start + part.numel()].view(part.shape)
        start += part.numel()
