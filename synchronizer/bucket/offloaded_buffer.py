"""A buffer whose values are on the host while its device memory is freed.

The storage shrinks to zero bytes and grows again, so every tensor over it stays the
same object: views, `.grad` and all other references see the values again.
"""

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Self

import torch

from .gradient_view import GradientView


@dataclass(frozen=True, slots=True, eq=False)
class OffloadedBuffer:
    """The values of a buffer, in host memory.

    Attributes:
        values: Shape (N,); page-locked where the buffer is on an accelerator.
        views: Views that were `.grad`. `.grad` is None meanwhile, so a backward
            allocates another `.grad` and does not write into freed memory.
    """

    values: torch.Tensor
    views: tuple[GradientView, ...]

    @classmethod
    def of(cls, buffer: torch.Tensor, views: Iterable[GradientView]) -> Self:
        """Return the values of a buffer on the host, and free its device memory.

        The current stream is ordered after all users of the buffer. `views` are all its
        views.
        """
        is_on_host = buffer.device.type == "cpu"
        values = torch.empty(
            buffer.shape, dtype=buffer.dtype, pin_memory=not is_on_host
        )
        # When may the memory be reused: at once. The host waits here for the current
        # stream, and so for all users of the memory. The next user, on any stream, is
        # ordered after them.
        values.copy_(buffer)
        # Before the storage shrinks: `is_attached` compares addresses.
        attached = tuple(view for view in views if view.is_attached())
        buffer.untyped_storage().resize_(0)
        for view in attached:
            view.detach()
        return cls(values, attached)

    def restore(self, buffer: torch.Tensor) -> None:
        """Allocate the buffer on the current stream, with its values and `.grad`."""
        buffer.untyped_storage().resize_(self.values.nbytes)
        buffer.copy_(self.values, non_blocking=True)
        for view in self.views:
            view.plan.parameter.grad = view.gradient
