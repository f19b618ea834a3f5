"""The outermost backward: whether it is running, whether it ended, or was interrupted.

Note [One backward]
~~~~~~~~~~~~~~~~~~~
A backward may run others inside of itself: a reentrant checkpoint does so for each of
its segments, and a hook may. Autograd accumulates, and calls our hooks, once for each
of them, yet to the user who called `backward()` all of it is one. So a parameter counts
once for each *outermost* backward.

Autograd calls a queued callback at the end of the innermost backward that is running.
There we ask for the node that is being evaluated: none at the end of an outermost
backward, and otherwise the node of the next outer one in which this one ran. A hook on
that node runs in the outer backward, where the callback is queued again. So the mark
climbs, and needs nobody to wrap `forward()` or to know what a checkpoint is.

Autograd drops what was queued for a backward that raised. The mark is held by nobody
else, so one that is gone without having run says that its backward was interrupted.

Where autograd ends an inner backward on a thread that evaluates no node, which it may do
for one that spans several devices or is nested over 60 deep, that end is taken for the
outermost one. Gradients are then counted too often, which is an error and never silent.
And a node that raises after an inner backward of its own, and is run again on a kept
graph without a `wait()` or `zero_grad()` between, is not known to have raised.
"""

import weakref
from collections.abc import Callable
from threading import Lock
from typing import Any

import torch
from torch.utils.hooks import RemovableHandle


class BackwardWatch:
    """Follows a backward from its first gradient to the end of its outermost one.

    Args:
        lock: Guards whoever owns this object; held while `on_end` runs.
        on_end: A method, referred to weakly; called when the outermost backward ends.
    """

    def __init__(self, *, lock: Lock, on_end: Callable[[], None]) -> None:
        self._lock = lock
        self._on_end = weakref.WeakMethod(on_end)
        self._is_open = False
        # The mark that autograd holds; None while it climbs.
        self._mark: weakref.ref[_Mark] | None = None
        self._climbing: list[RemovableHandle] = []

    @property
    def is_open(self) -> bool:
        """Whether a backward brought a gradient and has not ended, or never will."""
        return self._is_open

    @property
    def was_interrupted(self) -> bool:
        """Whether the backward is known to be over without having ended."""
        return self._mark is not None and self._mark() is None

    def open(self) -> None:
        """Start to follow the backward that is running on this thread."""
        self._is_open = True
        self._queue_mark()

    def close(self) -> None:
        """Forget the backward, however it went."""
        self._is_open = False
        self._mark = None
        while self._climbing:
            self._climbing.pop().remove()

    def note_end(self, mark: "_Mark") -> None:
        """Go on in the next outer backward, or end where there is none.

        Args:
            mark: Of the backward that ends, perhaps one that was forgotten.
        """
        with self._lock:
            if self._mark is None or self._mark() is not mark:
                return
            # Typed as if there always were one.
            node: Any = torch._C._current_autograd_node()  # noqa: SLF001
            if node is not None:
                self._climb(node)
                return
            self.close()
            on_end = self._on_end()
            if on_end is not None:
                on_end()

    def _queue_mark(self) -> None:
        mark = _Mark(self)
        self._mark = weakref.ref(mark)
        torch.autograd.Variable._execution_engine.queue_callback(mark)  # noqa: SLF001

    def _climb(self, node: Any) -> None:
        self._mark = None
        reference = weakref.ref(self)

        def on_node_end(*_: object) -> None:
            watch = reference()
            if watch is not None:
                watch._resume()  # noqa: SLF001

        self._climbing.append(node.register_hook(on_node_end))

    def _resume(self) -> None:
        with self._lock:
            if self._climbing:
                self._queue_mark()


class _Mark:
    """What autograd calls at the end of a backward, and drops if it raises."""

    def __init__(self, watch: BackwardWatch) -> None:
        self._watch = weakref.ref(watch)

    def __call__(self) -> None:
        watch = self._watch()
        if watch is not None:
            watch.note_end(self)


def is_accumulating(parameter: torch.Tensor) -> bool:
    """Tell, inside a tensor hook, whether the gradient is on its way into `.grad`.

    Autograd runs the hooks of a tensor for `torch.autograd.grad` as well, which gives the
    gradient to its caller and accumulates nothing.

    Args:
        parameter: A leaf; the backward that runs its hook is the innermost on this thread.

    Returns:
        False for `torch.autograd.grad`.

    Source:
        `torch._C._will_engine_execute_node`, with which `register_multi_grad_hook` asks
        the same; for a leaf under `torch.autograd.grad` it raises.
    """
    node = torch.autograd.graph.get_gradient_edge(parameter).node
    try:
        return torch._C._will_engine_execute_node(node)  # noqa: SLF001
    except RuntimeError:
        return False
