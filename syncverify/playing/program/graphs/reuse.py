"""One parameter in several places of one graph, and in branches without a gradient."""

from __future__ import annotations

from collections.abc import Callable

import torch

from syncverify.playing.program.graphs.losses import total
from syncverify.playing.program.graphs.products import dot, halves, parts

_MANY = 5


def twice(local: torch.Tensor, constant: torch.Tensor) -> torch.Tensor:
    """Multiply the parameter by both halves of the constant."""
    one, other = halves(constant)
    return dot(local, one) + dot(local, other)


def many_times(local: torch.Tensor, constant: torch.Tensor) -> torch.Tensor:
    """Multiply the parameter by five parts of the constant."""
    return total(dot(local, part) for part in parts(constant, _MANY))


def expanded(local: torch.Tensor, constant: torch.Tensor) -> torch.Tensor:
    """Repeat the parameter without a copy; backward sums over the repetitions."""
    constants = torch.stack(halves(constant))
    return dot(local.unsqueeze(0).expand(constants.shape), constants)


def gathered(local: torch.Tensor, constant: torch.Tensor) -> torch.Tensor:
    """Look each element up twice, as an embedding does."""
    flat = local.reshape(-1)
    rows = torch.arange(flat.numel(), device=flat.device).repeat(2)
    return dot(flat[rows], torch.cat([half.reshape(-1) for half in halves(constant)]))


def in_slices(local: torch.Tensor, constant: torch.Tensor) -> torch.Tensor:
    """Use two views that share no element."""
    flat, constants = local.reshape(-1), constant.reshape(-1)
    return dot(flat[0::2], constants[0::2]) + dot(flat[1::2], constants[1::2])


def unbound(local: torch.Tensor, constant: torch.Tensor) -> torch.Tensor:
    """Use one view for each element: one node with many outputs."""
    flat = local.reshape(-1)
    if not flat.numel():
        return dot(local, constant)
    return dot(torch.stack(torch.unbind(flat)), constant.reshape(-1))


def restrided(local: torch.Tensor, constant: torch.Tensor) -> torch.Tensor:
    """Use a view with given strides, in which every element appears twice."""
    flat = local.reshape(-1)
    view = flat.as_strided((2, flat.numel()), (0, 1))
    return dot(view, torch.stack([half.reshape(-1) for half in halves(constant)]))


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
    """Compute a value that no root depends on, and use one of two outputs of a node."""
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


def added_to_another(local: torch.Tensor, constant: torch.Tensor) -> torch.Tensor:
    """Multiply, where there is no other parameter to add; else see `added_to`."""
    return dot(local, constant)


def added_to(
    other: torch.Tensor, make_local: Callable[[], torch.Tensor], constant: torch.Tensor
) -> torch.Tensor:
    """Add a tensor to another one, and take the other one away again.

    Returns:
        A scalar. The sum's backward hands one tensor to both as their gradient: a hook that writes
        it changes both. The other one's second gradient cancels it out.
    """
    # The engine begins with what was made last: with the sum, then with `make_local`.
    against = dot(other, -constant)
    local = make_local()
    return against + dot(local + other, constant)
