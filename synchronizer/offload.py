"""A buffer whose device memory was given back for a while, and how it comes back.

The storage shrinks to no bytes and grows again, so every tensor over it stays the very
same object: views, `.grad` and whatever else refers to the storage see the values again.
"""

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Self

import torch

from .gradient_view import GradientView


@dataclass(frozen=True, slots=True, eq=False)
class OffloadedBuffer:
    """What a buffer held, in host memory.

    Attributes:
        values: Shape (N,); page-locked where the buffer is on an accelerator.
        views: Those that were `.grad`, which is None meanwhile: a backward makes a
            `.grad` of its own then and writes into no memory of ours.
    """

    values: torch.Tensor
    views: tuple[GradientView, ...]

    @classmethod
    def of(cls, buffer: torch.Tensor, views: Iterable[GradientView]) -> Self:
        """Copy a buffer to the host and give back its memory.

        Args:
            buffer: Shape (N,); the current stream is ordered after all its users.
            views: All of them.

        Returns:
            What brings it back.
        """
        is_on_host = buffer.device.type == "cpu"
        values = torch.empty(
            buffer.shape, dtype=buffer.dtype, pin_memory=not is_on_host
        )
        # The host waits here for the current stream, and so for all users of the memory.
        # So whoever gets it next is ordered after them, on any stream.
        values.copy_(buffer)
        # While there still is an address by which to tell.
        attached = tuple(view for view in views if view.is_attached())
        buffer.untyped_storage().resize_(0)
        for view in attached:
            view.detach()
        return cls(values, attached)

    def restore(self, buffer: torch.Tensor) -> None:
        """Give a buffer memory of the current stream, its values, and `.grad` its views.

        Args:
            buffer: The one that was offloaded.
        """
        buffer.untyped_storage().resize_(self.values.nbytes)
        buffer.copy_(self.values, non_blocking=True)
        for view in self.views:
            view.plan.parameter.grad = view.gradient
