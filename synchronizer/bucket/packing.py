"""Gradients that lie outside of their buffer, found and copied for a whole bucket."""

from collections.abc import Sequence
from operator import attrgetter, is_

import torch

from syncverify.synchronizer.bucket.gradient_view import GradientView
from syncverify.synchronizer.contract.errors import ReplacedGradientError
from syncverify.synchronizer.transport.streams import SideStream

_grad = attrgetter("grad")
_address = torch.Tensor.data_ptr


class Attachment:
    """Tells which views of a bucket are not the `.grad` of their parameter."""

    def __init__(self, views: Sequence[GradientView]) -> None:
        self._views = views
        self._parameters = [view.parameter for view in views]
        self._addresses = [view.address for view in views]
        self._are_ordinary = not any(view.is_dtensor for view in views)

    def detached(self) -> list[GradientView]:
        """List the views that are no longer `.grad`, or no longer lie in the buffer."""
        # Without a call of Python for each ordinary gradient, because this is part of backward.
        if self._are_ordinary:
            gradients = [view.gradient for view in self._views]
            are_views = all(map(is_, map(_grad, self._parameters), gradients))
            if are_views and [*map(_address, gradients)] == self._addresses:
                return []
        return [view for view in self._views if not view.is_attached()]


@torch.no_grad()
def pack(moved: Sequence[GradientView], side: SideStream, label: str) -> None:
    """Copy gradients that lie elsewhere into their views, which become `.grad`.

    Zeros take the place of gradients that did not come. After `set_to_none`, gradients
    lie where autograd made them, so that nothing was added to zeros. The current stream is
    ordered after their writers.

    Raises:
        GradientMismatchError: A gradient does not fit.
        ReplacedGradientError: A gradient is gone.
    """
    sources = [_source(view, side, label) for view in moved]
    places, come = list[torch.Tensor](), list[torch.Tensor]()
    for view, source in zip(moved, sources, strict=True):
        if source is None:
            view.local.zero_()
        else:
            places.append(view.local)
            come.append(source)
        view.attach()
    if come:
        torch._foreach_copy_(places, come)


def _source(view: GradientView, side: SideStream, label: str) -> torch.Tensor | None:
    """Return what to copy into a view; None for zeros."""
    gradient = view.parameter.grad
    if gradient is not None:
        return view.source(gradient, side)
    if view.num_accumulations and not view.is_undefined:
        raise ReplacedGradientError(
            "a gradient was removed after the last backward and before wait()",
            expected="every .grad to be the tensor that autograd has made",
            got=f"None at {view.plan.name}",
            where=label,
        )
    return None
