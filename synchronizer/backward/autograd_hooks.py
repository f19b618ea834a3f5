"""Autograd hooks and gradient views on parameters: installation, calls and removal.

A parameter has a hook after the accumulation of a gradient. Where a gradient may arrive Partial
or wrap other tensors, another hook sees it arrive.

    * Parameters outlive synchronizers, so hooks reference their listener weakly.
    * Hooks know a parameter by its number and not by its bucket, so a rebuild of the
      buckets keeps them. No hook is installed twice.
    * A hook of the user may write `.grad`, and may be registered after ours. So a hook
      that finds one behind it launches nothing: see `Attachments.runs_last`.
    * A number needs no memory besides the hook. With thousands of parameters, all
      memory that a hook reads is outside of the processor's caches.
"""

import weakref
from collections.abc import Callable
from typing import Protocol

import torch
from torch import nn
from torch.distributed.tensor import DTensor
from torch.utils.hooks import RemovableHandle

from syncverify.synchronizer.backward.backward_watch import running_node
from syncverify.synchronizer.backward.collector import Collector
from syncverify.synchronizer.backward.exchanged_tensors import address, reconnect_hooks
from syncverify.synchronizer.backward.partial_gradients import (
    arrival_hook,
    may_arrive_partial,
)
from syncverify.synchronizer.bucket.bucket import Bucket
from syncverify.synchronizer.bucket.gradient_view import GradientView
from syncverify.synchronizer.contract.errors import (
    GradientMismatchError,
    InvalidArgumentError,
)


class Listener(Protocol):
    """The object that counts gradients."""

    def view(self, number: int) -> GradientView:
        """Return the view of a parameter, by its number."""

    def note_accumulation(self, number: int) -> None:
        """Count a gradient of a parameter that autograd has just accumulated."""

    def launch_ready(self) -> None:
        """Launch what a hook left, because a hook of the user came after it."""


class Attachments:
    """The gradient views, their buckets and hooks, by number of the parameter.

    Parameters outlive synchronizers: hooks and views also go when this object is
    dropped without a call of `remove_hooks`.
    """

    def __init__(self) -> None:
        self.views: list[GradientView] = []
        self.buckets: list[Bucket] = []
        self._numbers: dict[nn.Parameter, int] = {}
        self._handles: list[RemovableHandle] = []
        # By number of the parameter: the hook after its accumulation.
        self._counting: list[RemovableHandle] = []
        # By number of the parameter: the tensor that has the hooks, by its address.
        self._hooked: list[int] = []
        # Numbers of the parameters with a hook of the user behind ours, now or before.
        self._overtaken: set[int] = set()
        # The callback must not reference this object, so it gets the two lists. Both are
        # changed in place and never replaced.
        weakref.finalize(self, _drop, self._handles, self.views).atexit = False

    def attach_views(self, buckets: list[Bucket]) -> None:
        """Make the views of new buckets the `.grad` of their parameters.

        A second call has buckets of the same parameters.
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

    def number_of(self, parameter: nn.Parameter) -> int:
        """Return the number of a parameter.

        Raises:
            InvalidArgumentError: It has no view.
        """
        number = self._numbers.get(parameter)
        if number is None:
            raise InvalidArgumentError(
                "a parameter has no place in a bucket",
                expected="a listed parameter that was trained at bind()",
                got=f"a parameter of shape {tuple(parameter.shape)}",
            )
        return number

    def install_hooks(self, listener: Listener, collector: Collector | None) -> None:
        """Install hooks on every parameter with a view; reference `listener` weakly.

        The hook after an accumulation is that of `collector`, if there is one.
        """
        reference = weakref.ref(listener)
        for parameter, number in self._numbers.items():
            reconnect_hooks(parameter)  # those of an earlier bind() may be disconnected
            is_reduced = may_arrive_partial(self.views[number].plan)
            on_accumulation = (
                collector.hook(number) if collector else _hook(number, reference)
            )
            handles = _hooks(
                parameter, number, reference, on_accumulation, is_reduced=is_reduced
            )
            self._handles += handles
            self._counting.append(handles[-1])
            self._hooked.append(address(parameter))

    def exchanged(self) -> list[GradientView]:
        """List the views of parameters that have lost their hooks."""
        now = (address(parameter) for parameter in self._numbers)
        trios = zip(self.views, self._hooked, now, strict=True)
        return [view for view, before, after in trios if before != after]

    def runs_last(self, number: int, listener: Listener) -> bool:
        """Tell whether no hook of the user comes after the one that runs now.

        Where one does, `listener` launches after it: with the next gradient or as backward
        ends, and from the next backward on as soon as the last hook of the parameter ends.

        Returns:
            Whether the hook is the last one.
        """
        handle = self._counting[number]
        hooks = handle.hooks_dict_ref()
        assert hooks is not None, "the parameter lives as long as its view"
        if next(reversed(hooks)) == handle.id:
            return True
        if number not in self._overtaken:
            self._overtaken.add(number)
            parameter = self.views[number].plan.parameter
            self._handles.append(_launch_after_hooks(parameter, weakref.ref(listener)))
        return False

    def remove_hooks(self) -> None:
        """Remove all hooks from all parameters, for good."""
        _remove_all(self._handles)

    def forget(self) -> None:
        """Drop the references to all views and buckets."""
        self.views.clear()
        self.buckets.clear()


def _launch_after_hooks(
    parameter: nn.Parameter, listener: weakref.ref[Listener]
) -> RemovableHandle:
    """Launch after all hooks of a parameter, whenever it gets a gradient.

    Returns:
        The handle of the hook that sees the gradient arrive.

    Source:
        `call_function` in torch's `engine.cpp`: hooks of a node run after those of its
        parameter, if the node has any when the gradient has arrived. A hook that is
        registered earlier would have to keep the node, and with it its stream, alive.
    """

    def on_arrival(_: torch.Tensor) -> None:
        # `torch.autograd.grad` runs this hook too, and then leaves a hook that does no harm.
        node = running_node()
        if node is None:  # a compiled backward; the launch comes with the next gradient
            return
        handles: list[RemovableHandle] = []
        handles.append(node.register_hook(lambda *_: on_end(handles)))

    def on_end(handles: list[RemovableHandle]) -> None:
        handles.pop().remove()
        known = listener()
        if known is not None:
            known.launch_ready()

    handle: RemovableHandle = parameter.register_hook(on_arrival)
    return handle


def _drop(handles: list[RemovableHandle], views: list[GradientView]) -> None:
    _remove_all(handles)
    for view in views:
        view.detach()


def _remove_all(handles: list[RemovableHandle]) -> None:
    while handles:
        handles.pop().remove()


def _refuse_wrapped(gradient: torch.Tensor) -> None:
    """Refuse a gradient whose operators run once for each tensor inside of it."""
    if hasattr(gradient, "__tensor_flatten__"):
        raise GradientMismatchError(
            "a gradient is a tensor that wraps others",
            expected="gradients that wrap no tensors, also of parameters that wrap other tensors",
            got=f"a {type(gradient).__name__} of shape {tuple(gradient.shape)}",
        )


def _hooks(
    parameter: nn.Parameter,
    number: int,
    listener: weakref.ref[Listener],
    on_accumulation: Callable[[torch.Tensor], None],
    *,
    is_reduced: bool,
) -> list[RemovableHandle]:
    """Install the hooks of one parameter.

    `number` identifies the parameter for the listener. `is_reduced` tells whether
    gradients may arrive that have to be relabelled as local.

    Returns:
        Handles that remove the hooks; last the one of the hook after the accumulation.
    """
    handles: list[RemovableHandle] = []
    if is_reduced:

        def find_view() -> GradientView | None:
            known = listener()
            return None if known is None else known.view(number)

        handles.append(parameter.register_hook(arrival_hook(find_view)))

    if hasattr(parameter, "__tensor_flatten__") and not isinstance(parameter, DTensor):
        handles.append(parameter.register_hook(_refuse_wrapped))

    handles.append(parameter.register_post_accumulate_grad_hook(on_accumulation))
    return handles


def _hook(
    number: int, listener: weakref.ref[Listener]
) -> Callable[[torch.Tensor], None]:
    def on_accumulation(_: torch.Tensor) -> None:
        known = listener()
        if known is not None:
            known.note_accumulation(number)

    return on_accumulation
