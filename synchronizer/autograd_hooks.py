"""What autograd calls: one hook when a gradient arrives, one when it was accumulated.

Parameters outlive synchronizers, so hooks refer to their listener weakly. They know a
parameter by its number rather than by its bucket, and so survive that buckets are cut
anew: no hook is ever installed twice, nor changes its place among those of the user. A
number also costs no memory of its own: with thousands of parameters each hook finds
whatever is its own outside of the processor's caches.
"""

import weakref
from typing import Protocol

import torch
from torch import nn
from torch.utils.hooks import RemovableHandle

from .gradient_view import GradientView
from .partial_gradient import arrival_hook


class Listener(Protocol):
    """Who counts gradients."""

    def view(self, number: int) -> GradientView:
        """Return the view of a parameter, by its number."""

    def note_accumulation(self, number: int) -> None:
        """Take note that autograd has accumulated a gradient of a parameter."""


def install_hooks(
    parameter: nn.Parameter,
    number: int,
    listener: weakref.ref[Listener],
    *,
    is_reduced: bool,
) -> list[RemovableHandle]:
    """Follow the gradients of a parameter.

    Args:
        parameter: The parameter.
        number: By which the listener knows it.
        listener: Told of each accumulation.
        is_reduced: Whether gradients may arrive that are to be told to be local.

    Returns:
        What removes the hooks.
    """
    handles: list[RemovableHandle] = []
    if is_reduced:

        def find_view() -> GradientView | None:
            known = listener()
            return None if known is None else known.view(number)

        handles.append(parameter.register_hook(arrival_hook(find_view)))

    def on_accumulation(_: torch.Tensor) -> None:
        known = listener()
        if known is not None:
            known.note_accumulation(number)

    handles.append(parameter.register_post_accumulate_grad_hook(on_accumulation))
    return handles
