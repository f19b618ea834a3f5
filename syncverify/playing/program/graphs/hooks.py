"""The user's hooks, which observe, clip and replace gradients."""

import functools
import math
from collections.abc import Iterable
from typing import Any

import torch
from torch import nn
from torch.autograd.graph import register_multi_grad_hook

from syncverify.playing.program.graphs.losses import Losses, dot
from syncverify.playing.program.own_parameters import local_part

_SCALE = 2.0**16


def tensor_hooks(local: torch.Tensor, constant: torch.Tensor) -> torch.Tensor:
    """Clip the gradient of an intermediate without an effect, and halve the gradient."""
    used = local.clone()
    # A finite limit would change the gradients that are Inf in a scenario.
    used.register_hook(lambda gradient: gradient.clamp(-math.inf, math.inf))
    used.register_hook(lambda gradient: gradient / 2)
    return dot(used, 2 * constant)


def node_hooks(local: torch.Tensor, constant: torch.Tensor) -> torch.Tensor:
    """Double the gradients that enter a node, and halve the gradients that leave it."""
    used = local.clone()
    assert used.grad_fn is not None, "the parameter needs a gradient"
    used.grad_fn.register_prehook(_doubled)
    used.grad_fn.register_hook(_halved)
    return dot(used, constant)


def retained_gradient(local: torch.Tensor, constant: torch.Tensor) -> torch.Tensor:
    """Keep the gradient of an intermediate, as if the intermediate were a leaf."""
    used = local.clone()
    used.retain_grad()
    return dot(used, constant)


def _doubled(gradients: Any) -> Any:
    return tuple(None if each is None else each * 2 for each in gradients)


def _halved(gradients: Any, _: Any) -> Any:
    return tuple(None if each is None else each / 2 for each in gradients)


def install_lasting_hooks(parameters: Iterable[nn.Parameter]) -> None:
    """Install hooks of the user that are there before a subject, and stay."""
    for parameter in parameters:
        if parameter.requires_grad:
            parameter.register_hook(_observe)
            parameter.register_post_accumulate_grad_hook(_observe)


def hooks_of_others(losses: Losses) -> None:
    """Install the user's hooks on the parameters, after the subject's hooks.

    There are three kinds of hooks: one halves the doubled gradient, one observes the
    accumulated gradient, and one observes the gradients of all parameters.
    """
    parameters = [*losses.parameters.values()]
    handles = [
        handle
        for parameter in parameters
        for handle in (
            parameter.register_hook(lambda gradient: gradient / 2),
            parameter.register_post_accumulate_grad_hook(_observe),
        )
    ]
    # The hook on several parameters takes views of their shapes. DTensor refuses these
    # views where a sharded dim is empty.
    filled = [parameter for parameter in parameters if parameter.numel()]
    handles.append(register_multi_grad_hook(filled, _observe))
    _backward_with(handles, losses, torch.tensor(2.0))


def hook_writes_grad(losses: Losses) -> None:
    """Keep each gradient from being accumulated, and add it in a hook that comes later.

    A synchronizer with a hook of the same kind, registered earlier, sees `.grad` without the
    gradient of this backward.
    """
    taken: dict[torch.Tensor, torch.Tensor] = {}

    def take(parameter: torch.Tensor, gradient: torch.Tensor) -> torch.Tensor:
        taken[parameter] = gradient.clone()
        return torch.zeros_like(gradient)

    def add(parameter: torch.Tensor) -> None:
        assert parameter.grad is not None, "the backward has accumulated zeros"
        local_part(parameter.grad).add_(local_part(taken.pop(parameter)))

    handles = []
    for parameter in losses.parameters.values():
        handles.append(parameter.register_hook(functools.partial(take, parameter)))
        handles.append(parameter.register_post_accumulate_grad_hook(add))
    _backward_with(handles, losses)


def hook_reads_grad(losses: Losses) -> None:
    """Read each accumulated gradient on the host, in a hook that comes later.

    A synchronizer with a hook of the same kind, registered earlier, may be summing by then.
    """
    handles = [
        parameter.register_post_accumulate_grad_hook(_read_on_host)
        for parameter in losses.parameters.values()
    ]
    _backward_with(handles, losses)


def _backward_with(handles: list[Any], losses: Losses, *gradient: torch.Tensor) -> None:
    """Run backward, and take the hooks away again."""
    try:
        losses.total().backward(*gradient)
    finally:
        for handle in handles:
            handle.remove()


def _read_on_host(parameter: torch.Tensor) -> None:
    if parameter.grad is not None and not parameter.is_meta:
        local_part(parameter.grad).cpu()


def loss_scaling(losses: Losses) -> None:
    """Scale the loss as mixed precision does, and undo the scale in hooks on the terms."""
    scaler = torch.amp.GradScaler("cpu", init_scale=_SCALE)
    for term in losses.terms.values():
        # A wrapper may make one node of all terms.
        term.register_hook(lambda gradient: gradient / _SCALE)
    scaled: torch.Tensor = scaler.scale(losses.total())
    scaled.backward()


def _observe(_: object) -> None:
    """Do nothing, at a moment when a subject may reduce or read gradients."""
