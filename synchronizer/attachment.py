"""What a synchronizer leaves on parameters, and how it goes again: views and hooks."""

import weakref

from torch import nn
from torch.utils.hooks import RemovableHandle

from .autograd_hooks import Listener, Membership, install_hooks
from .bucket import Bucket
from .gradient_view import GradientView


class Attachments:
    """The views in `.grad` and the hooks of all parameters.

    Parameters outlive synchronizers: hooks and buffers go with this object even if
    nobody calls `remove`.
    """

    def __init__(self) -> None:
        # By parameter; keeps alive what the hooks refer to.
        self.memberships: dict[nn.Parameter, Membership] = {}
        self._views: list[GradientView] = []
        self._handles: list[RemovableHandle] = []
        weakref.finalize(self, _drop, self._handles, self._views).atexit = False

    def enter(self, bucket: Bucket) -> None:
        """Put a bucket's views into `.grad`, and let hooks find them.

        Args:
            bucket: New; its parameters may have been in another one.
        """
        for view in bucket.views:
            view.attach()
            self._views.append(view)
            parameter = view.plan.parameter
            membership = self.memberships.get(parameter)
            if membership is None:
                self.memberships[parameter] = Membership(bucket, view)
            else:
                membership.bucket, membership.view = bucket, view

    def install_hooks(self, listener: Listener) -> None:
        """Install the hooks of every parameter that was entered.

        Args:
            listener: Told of each accumulation; referred to weakly.
        """
        reference = weakref.ref(listener)
        for membership in self.memberships.values():
            self._handles += install_hooks(membership, reference)

    def leave_buckets(self) -> None:
        """Forget the views but not the parameters, which are entered again."""
        self._views.clear()
        for membership in self.memberships.values():
            del membership.bucket, membership.view

    def remove_hooks(self) -> None:
        """Leave no hook on any parameter."""
        _remove_all(self._handles)

    def forget(self) -> None:
        """Let go of every view."""
        self._views.clear()
        self.memberships.clear()


def _drop(handles: list[RemovableHandle], views: list[GradientView]) -> None:
    _remove_all(handles)
    for view in views:
        view.detach()


def _remove_all(handles: list[RemovableHandle]) -> None:
    while handles:
        handles.pop().remove()
