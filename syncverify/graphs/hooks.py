"""Hooks of the user's, which look on, clip, and replace."""

from __future__ import annotations

from typing import Any

import torch
from torch.autograd.graph import register_multi_grad_hook

from syncverify.graphs.losses import Losses
from syncverify.graphs.products import dot

_SCALE = 2.0**16


def tensor_hooks(local: torch.Tensor, constant: torch.Tensor) -> torch.Tensor:
    """Clip the gradient of an intermediate where nothing is to clip, and halve it."""
    used, limit = local.clone(), torch.finfo(local.dtype).max
    used.register_hook(lambda gradient: gradient.clamp(-limit, limit))
    used.register_hook(lambda gradient: gradient / 2)
    return dot(used, 2 * constant)


def node_hooks(local: torch.Tensor, constant: torch.Tensor) -> torch.Tensor:
    """Double what goes into a node, and halve what comes out of it."""
    used = local.clone()
    assert used.grad_fn is not None, "the parameter needs a gradient"
    used.grad_fn.register_prehook(_doubled)
    used.grad_fn.register_hook(_halved)
    return dot(used, constant)


def retained_gradient(local: torch.Tensor, constant: torch.Tensor) -> torch.Tensor:
    """Keep the gradient of an intermediate, as if it were a leaf."""
    used = local.clone()
    used.retain_grad()
    return dot(used, constant)


def _doubled(gradients: Any) -> Any:
    return tuple(None if each is None else each * 2 for each in gradients)


def _halved(gradients: Any, _: Any) -> Any:
    return tuple(None if each is None else each / 2 for each in gradients)


def hooks_of_others(losses: Losses) -> None:
    """Have hooks on the parameters themselves: the user's, installed after the subject's.

    One replaces the gradient, one looks on when it was accumulated, and one when all are
    there.
    """
    parameters = [*losses.parameters.values()]
    handles = [
        handle
        for parameter in parameters
        for handle in (
            parameter.register_hook(lambda gradient: gradient / 2),
            parameter.register_post_accumulate_grad_hook(_look),
        )
    ]
    # It takes views of their shapes, which DTensor refuses where a sharded dim is empty.
    filled = [parameter for parameter in parameters if parameter.numel()]
    handles.append(register_multi_grad_hook(filled, _look))
    try:
        losses.total().backward(torch.tensor(2.0))
    finally:
        for handle in handles:
            handle.remove()


def loss_scaling(losses: Losses) -> None:
    """Scale the loss as mixed precision does, and undo it in hooks on the terms."""
    scaler = torch.amp.GradScaler("cpu", init_scale=_SCALE)
    for term in losses.terms.values():
        assert term.grad_fn is not None, "terms need gradients"
        term.grad_fn.register_prehook(_unscaled)
    scaled: torch.Tensor = scaler.scale(losses.total())
    scaled.backward()


def _look(_: object) -> None:
    """Do nothing, at a moment when a subject may be at work."""


def _unscaled(gradients: Any) -> Any:
    return tuple(None if each is None else each / _SCALE for each in gradients)
