"""The hooks in autograd: for each gradient of a parameter, and for the end of backward.

A parameter has a hook after the accumulation of a gradient. Where a gradient may arrive Partial
or wrap other tensors, another hook sees it arrive.

    * Parameters outlive synchronizers, so hooks reference their listener weakly.
    * Hooks know a parameter by its number and not by its bucket, so a rebuild of the
      buckets keeps them. No hook is installed twice.
    * A hook of the user may write `.grad`, and may be registered after ours. So a hook
      that finds one behind it launches nothing: see `Attachments.runs_last`.
    * A number needs no memory besides the hook. With thousands of parameters, all
      memory that a hook reads is outside of the processor's caches.

Note [One backward]
~~~~~~~~~~~~~~~~~~~
A backward may run others inside: a reentrant checkpoint does so for each of its
segments, and a hook may. Autograd accumulates gradients and calls hooks for each of
them. For the user, one call of `backward()` is one backward. So a parameter counts once
for each *outermost* backward.

This is how the end of the outermost backward is found:

1. The first gradient queues a callback, the *mark*. Autograd calls it at the end of the
   innermost backward that is running.
2. The mark asks autograd for the node that is being evaluated. Without a node, the
   backward that ends is the outermost one.
3. Otherwise the backward ran inside that node of an outer backward. A hook on the node
   runs in the outer backward and queues the mark again. So the mark climbs outward.
   No module has to wrap `forward()`, and no code has to know checkpoints.

Autograd drops the callbacks of a backward that raised. Only autograd holds the mark. So
a mark that is gone without a call shows that its backward was interrupted.

Two limits:

    * Autograd may end an inner backward on a thread that evaluates no node: for a
      backward over several devices, or one that is nested over 60 deep. That end is
      taken for the outermost one. Gradients are then counted too often, which is an
      error and never silent.
    * A node may raise after an inner backward, and run again on a kept graph without a
      `wait()` or `zero_grad()` between. That error stays unknown.

Note [Exchanged tensors]
~~~~~~~~~~~~~~~~~~~~~~~~
`torch.utils.swap_tensors(p, q)` leaves the Python object `p` where it is, with its hooks in
`p._post_accumulate_grad_hooks`. But autograd runs the hooks of the tensor, and those are with
`q` now. `Module.to()` exchanges each DTensor in this way, so its hooks never run again, and
hooks that are registered later do not either: torch finds the dict of the old ones, and adds to
it. Other parameters stay the same tensor, in new memory. Only private attributes tell this:
`_cdata`, the address of the tensor in C++, is another one after an exchange.
"""

import sys
import weakref
from collections.abc import Callable, Sequence
from threading import Lock
from typing import Any, Protocol

import torch
from torch import nn
from torch.distributed.tensor import DTensor
from torch.utils.hooks import RemovableHandle

from syncverify.synchronizer.backward.collector import Collector
from syncverify.synchronizer.bucket.bucket import Bucket
from syncverify.synchronizer.bucket.gradient_view import GradientView
from syncverify.synchronizer.contract.errors import (
    GradientMismatchError,
    InvalidArgumentError,
    LifecycleError,
)


class Listener(Protocol):
    """The object that counts gradients, of parameters by their numbers."""

    def note_arrival(self, number: int, gradient: torch.Tensor) -> torch.Tensor | None:
        """Return the tensor to accumulate in place of a gradient; None for itself."""

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
        # By number: `_cdata` of the tensor with the hooks, see Note [Exchanged tensors].
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
            self._numbers = {each: number for number, each in enumerate(found)}
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

    def install_hooks(
        self,
        listener: Listener,
        collector: Collector | None,
        may_arrive_partial: Sequence[bool],
    ) -> None:
        """Install hooks on every parameter with a view; reference `listener` weakly.

        The hook after an accumulation is that of `collector`, if there is one. By number,
        `may_arrive_partial` tells which gradients may have to be relabelled on arrival.
        """
        reference = weakref.ref(listener)
        for parameter, number in self._numbers.items():
            _reconnect_hooks(parameter)
            if may_arrive_partial[number]:
                on_arrival = _arrival_hook(number, reference)
                self._handles.append(parameter.register_hook(on_arrival))
            elif not isinstance(parameter, DTensor) and _wraps_others(parameter):
                self._handles.append(parameter.register_hook(_refuse_wrapped))
            hook = collector.hook(number) if collector else _hook(number, reference)
            handle = parameter.register_post_accumulate_grad_hook(hook)
            self._handles.append(handle)
            self._counting.append(handle)
            self._hooked.append(parameter._cdata)  # noqa: SLF001

    def exchanged(self) -> list[GradientView]:
        """List the views of parameters that have lost their hooks."""
        now = (parameter._cdata for parameter in self._numbers)  # noqa: SLF001
        trios = zip(self.views, self._hooked, now, strict=True)
        return [view for view, before, after in trios if before != after]

    def runs_last(self, number: int, listener: Listener) -> bool:
        """Tell whether no hook of the user comes after the one that runs now.

        Where one does, `listener` launches after it: with the next gradient or as backward
        ends, and from the next backward on as soon as the last hook of the parameter ends.
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
        _drop(self._handles, ())


class BackwardWatch:
    """Follows a backward from its first gradient to the end of the outermost one.

    `lock` is the lock of the owner, held while `on_end` runs. `on_end` is a method,
    referenced weakly, for the end of the outermost backward.
    """

    def __init__(self, *, lock: Lock, on_end: Callable[[], None]) -> None:
        self._lock = lock
        self._on_end = weakref.WeakMethod(on_end)
        self.is_open = (
            False  # whether a backward has brought a gradient and has not ended
        )
        # The mark that autograd holds; None while the mark climbs. A weak reference,
        # because only autograd may keep the mark alive: see Note [One backward].
        self._mark: weakref.ref[_Mark] | None = None
        self._climbing: list[RemovableHandle] = []

    @property
    def was_interrupted(self) -> bool:
        """Tell whether the open backward was interrupted: its mark is gone, uncalled."""
        return self._mark is not None and self._mark() is None

    def open(self) -> None:
        """Start to follow the backward that runs on this thread.

        The gradient may also come from a callback at the end of a backward, as FSDP2 brings
        those of modules whose inputs need no gradient. Autograd then calls the mark after it.

        Raises:
            LifecycleError: The engine does not run the hook, as in compiled autograd.
        """
        if running_node() is None and not _is_in_callback():
            raise LifecycleError(
                "torch's compiled autograd runs the hooks of a backward",
                expected="a backward of torch's engine, which tells when it ends",
                got="compiled autograd",
                hint="call backward() outside of torch._dynamo.compiled_autograd; a"
                " compiled forward is supported",
            )
        self.is_open = True
        self._queue_mark()

    def close(self) -> None:
        """Forget the backward, with or without an end."""
        self.is_open = False
        self._mark = None
        _drop(self._climbing, ())

    def note_end(self, mark: "_Mark") -> None:
        """Continue in the next outer backward, or end where there is none.

        The mark may belong to a forgotten backward.
        """
        with self._lock:
            if self._mark is None or self._mark() is not mark:
                return
            node = running_node()
            if node is not None:
                self._mark = None
                # The graph may outlive the synchronizer, so its hook has a weak reference.
                resume = weakref.WeakMethod(self._resume)
                hook = node.register_hook(lambda *_: _call(resume()))
                self._climbing.append(hook)
                return
            self.close()
            _call(self._on_end())

    def _queue_mark(self) -> None:
        # After this call only autograd's queue holds a reference to the mark.
        mark = _Mark(self)
        self._mark = weakref.ref(mark)
        torch.autograd.Variable._execution_engine.queue_callback(mark)  # noqa: SLF001

    def _resume(self) -> None:
        with self._lock:
            if self._climbing:
                self._queue_mark()


class _Mark:
    """The callback that autograd calls at the end of a backward, unless it raised."""

    def __init__(self, watch: BackwardWatch) -> None:
        self._watch = weakref.ref(watch)

    def __call__(self) -> None:
        watch = self._watch()
        if watch is not None:
            watch.note_end(self)


def running_node() -> Any:
    """Return the node that this thread evaluates; None at the end of the outermost backward."""
    return torch._C._current_autograd_node()  # noqa: SLF001


# Number of the backward that runs on this thread; inner ones have numbers of their own.
running_backward = torch._C._current_graph_task_id  # noqa: SLF001


def is_accumulating(parameter: torch.Tensor) -> bool:
    """Return whether the gradient is on its way into `.grad`, inside a hook of a leaf.

    Autograd runs tensor hooks for `torch.autograd.grad` as well, which returns the
    gradient to its caller and accumulates nothing. The backward that runs the hook is
    the innermost on this thread.

    Source:
        `torch._C._will_engine_execute_node`, which `register_multi_grad_hook` uses for
        the same question; for a leaf under `torch.autograd.grad` it raises.
    """
    node = torch.autograd.graph.get_gradient_edge(parameter).node
    try:
        return torch._C._will_engine_execute_node(node)  # noqa: SLF001
    except RuntimeError:
        return False


def _is_in_callback() -> bool:
    """Return whether a backward of the engine runs; compiled autograd calls no callbacks."""
    compiled = sys.modules.get("torch._dynamo.compiled_autograd")
    is_compiled = getattr(compiled, "in_compiled_autograd_region", False)
    return running_backward() != -1 and not is_compiled


def _call(method: Callable[[], None] | None) -> None:
    """Call a method whose object still lives."""
    if method is not None:
        method()


def _drop(handles: list[RemovableHandle], views: Sequence[GradientView]) -> None:
    while handles:
        handles.pop().remove()
    for view in views:
        view.detach()


def _reconnect_hooks(parameter: torch.Tensor) -> None:
    """Give the hooks of an earlier `bind()` to the tensor, see Note [Exchanged tensors]."""
    for name in ("_backward_hooks", "_post_accumulate_grad_hooks"):
        hooks = getattr(parameter, name)
        if hooks is not None:
            setattr(parameter, name, None)
            setattr(parameter, name, hooks)


def _hook(
    number: int, listener: weakref.ref[Listener]
) -> Callable[[torch.Tensor], None]:
    def on_accumulation(_: torch.Tensor) -> None:
        known = listener()
        if known is not None:
            known.note_accumulation(number)

    return on_accumulation


def _arrival_hook(
    number: int, listener: weakref.ref[Listener]
) -> Callable[[torch.Tensor], torch.Tensor | None]:
    def on_arrival(gradient: torch.Tensor) -> torch.Tensor | None:
        known = listener()
        return None if known is None else known.note_arrival(number, gradient)

    return on_arrival


def _wraps_others(tensor: torch.Tensor) -> bool:
    return hasattr(tensor, "__tensor_flatten__")


def _refuse_wrapped(gradient: torch.Tensor) -> None:
    """Refuse a gradient whose operators run once for each tensor inside of it."""
    if _wraps_others(gradient):
        raise GradientMismatchError(
            "a gradient is a tensor that wraps others",
            expected="gradients that wrap no tensors, also of parameters that wrap other tensors",
            got=f"a {type(gradient).__name__} of shape {tuple(gradient.shape)}",
        )


def _launch_after_hooks(
    parameter: nn.Parameter, listener: weakref.ref[Listener]
) -> RemovableHandle:
    """Launch after all hooks of a parameter, whenever it gets a gradient.

    Source:
        `call_function` in torch's `engine.cpp`: hooks of a node run after those of its
        parameter, if the node has any when the gradient has arrived. A hook that is
        registered earlier would have to keep the node, and with it its stream, alive.
    """

    def on_arrival(_: torch.Tensor) -> None:
        # `torch.autograd.grad` runs this hook too, and then leaves a hook that does no harm.
        def on_end(*_: object) -> None:
            handle.remove()
            known = listener()
            if known is not None:
                known.launch_ready()

        node = running_node()
        if node is not None:  # else a compiled one; the next gradient brings the launch
            handle = node.register_hook(on_end)

    handle: RemovableHandle = parameter.register_hook(on_arrival)
    return handle
