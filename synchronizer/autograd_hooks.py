"""What autograd calls: one hook when a gradient arrives, one when it was accumulated.

Parameters outlive synchronizers, so hooks refer to everything weakly. They refer to a
parameter's membership rather than to its bucket, and so survive that buckets are cut
anew: no hook is ever installed twice, nor changes its place among those of the user.
"""

import weakref
from collections.abc import Callable
from dataclasses import dataclass
from typing import Protocol

import torch
from torch.utils.hooks import RemovableHandle

from .bucket import Bucket
from .gradient_view import GradientView
from .partial_gradient import arrival_hook


@dataclass(slots=True, eq=False, weakref_slot=True)
class Membership:
    """Where a parameter's gradient lives now.

    Attributes:
        bucket: Of which the gradient is a part.
        view: Its place in the bucket.
    """

    bucket: Bucket
    view: GradientView


class Listener(Protocol):
    """Who counts gradients."""

    def note_accumulation(self, membership: Membership) -> None:
        """Take note that autograd has accumulated a gradient."""


def install_hooks(
    membership: Membership, listener: weakref.ref[Listener]
) -> list[RemovableHandle]:
    """Follow the gradients of a parameter.

    Args:
        membership: Of the parameter; referred to weakly.
        listener: Told of each accumulation. One reference for all hooks: with thousands
            of them each finds whatever is its own outside of the processor's caches.

    Returns:
        What removes the hooks.
    """
    reference = weakref.ref(membership)
    plan = membership.view.plan
    handles: list[RemovableHandle] = []
    if plan.reduce_axes:

        def find_view() -> GradientView | None:
            known = reference()
            return None if known is None else known.view

        handles.append(plan.parameter.register_hook(arrival_hook(find_view)))
    hook = _accumulation_hook(listener, reference)
    handles.append(plan.parameter.register_post_accumulate_grad_hook(hook))
    return handles


def _accumulation_hook(
    listener_reference: weakref.ref[Listener],
    reference: weakref.ref[Membership],
) -> Callable[[torch.Tensor], None]:
    """Count a gradient that autograd has accumulated."""

    def on_accumulation(_: torch.Tensor) -> None:
        listener, membership = listener_reference(), reference()
        if listener is not None and membership is not None:
            listener.note_accumulation(membership)

    return on_accumulation
