"""What a synchronizer leaves on parameters, and how it goes again: views and hooks."""

import weakref

from torch import nn
from torch.utils.hooks import RemovableHandle

from .autograd_hooks import Listener, install_hooks
from .bucket import Bucket
from .gradient_view import GradientView
from .partial_gradient import may_arrive_partial


class Attachments:
    """The views in `.grad` and the hooks of all parameters, which are numbered.

    Parameters outlive synchronizers: hooks and buffers go with this object even if
    nobody calls `remove_hooks`.

    Attributes:
        views: By number of the parameter.
        buckets: Those of which the views are parts, likewise.
    """

    def __init__(self) -> None:
        self.views: list[GradientView] = []
        self.buckets: list[Bucket] = []
        self._numbers: dict[nn.Parameter, int] = {}
        self._handles: list[RemovableHandle] = []
        weakref.finalize(self, _drop, self._handles, self.views).atexit = False

    def enter(self, buckets: list[Bucket]) -> None:
        """Put the views of buckets into `.grad`, for hooks to find them.

        Args:
            buckets: All of them, new. A second time they hold the same parameters.
        """
        found = {view.plan.parameter: (view, b) for b in buckets for view in b.views}
        if not self._numbers:
            self._numbers = {
                parameter: number for number, parameter in enumerate(found)
            }
        for parameter in self._numbers:
            view, bucket = found[parameter]
            view.attach()
            self.views.append(view)
            self.buckets.append(bucket)

    def install_hooks(self, listener: Listener) -> None:
        """Install the hooks of every parameter that was entered.

        Args:
            listener: Told of each accumulation; referred to weakly.
        """
        reference = weakref.ref(listener)
        for parameter, number in self._numbers.items():
            is_reduced = may_arrive_partial(self.views[number].plan)
            self._handles += install_hooks(
                parameter, number, reference, is_reduced=is_reduced
            )

    def remove_hooks(self) -> None:
        """Leave no hook on any parameter."""
        _remove_all(self._handles)

    def forget(self) -> None:
        """Let go of every view, and of every bucket."""
        self.views.clear()
        self.buckets.clear()


def _drop(handles: list[RemovableHandle], views: list[GradientView]) -> None:
    _remove_all(handles)
    for view in views:
        view.detach()


def _remove_all(handles: list[RemovableHandle]) -> None:
    while handles:
        handles.pop().remove()
