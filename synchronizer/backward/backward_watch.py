"""The outermost backward: whether it runs, has ended, or was interrupted.

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
"""

import sys
import weakref
from collections.abc import Callable
from threading import Lock
from typing import Any

import torch
from torch.utils.hooks import RemovableHandle

from syncverify.synchronizer.contract.errors import LifecycleError


class BackwardWatch:
    """Follows a backward from its first gradient to the end of the outermost one.

    `lock` is the lock of the owner, held while `on_end` runs. `on_end` is a method,
    referenced weakly, for the end of the outermost backward.
    """

    def __init__(self, *, lock: Lock, on_end: Callable[[], None]) -> None:
        self._lock = lock
        self._on_end = weakref.WeakMethod(on_end)
        self._is_open = False
        # The mark that autograd holds; None while the mark climbs. A weak reference,
        # because only autograd may keep the mark alive: see Note [One backward].
        self._mark: weakref.ref[_Mark] | None = None
        self._climbing: list[RemovableHandle] = []

    @property
    def is_open(self) -> bool:
        """Tell whether a backward has brought a gradient and has not ended."""
        return self._is_open

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
        self._is_open = True
        self._queue_mark()

    def close(self) -> None:
        """Forget the backward, with or without an end."""
        self._is_open = False
        self._mark = None
        while self._climbing:
            self._climbing.pop().remove()

    def note_end(self, mark: "_Mark") -> None:
        """Continue in the next outer backward, or end where there is none.

        The mark may belong to a forgotten backward.
        """
        with self._lock:
            if self._mark is None or self._mark() is not mark:
                return
            node = running_node()
            if node is not None:
                self._climb(node)
                return
            self.close()
            on_end = self._on_end()
            if on_end is not None:
                on_end()

    def _queue_mark(self) -> None:
        # After this call only autograd's queue holds a reference to the mark.
        mark = _Mark(self)
        self._mark = weakref.ref(mark)
        torch.autograd.Variable._execution_engine.queue_callback(mark)  # noqa: SLF001

    def _climb(self, node: Any) -> None:
        self._mark = None
        # The graph may outlive the synchronizer, so its hook has a weak reference.
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


def _is_in_callback() -> bool:
    """Return whether a backward of the engine runs; compiled autograd calls no callbacks."""
    compiled = sys.modules.get("torch._dynamo.compiled_autograd")
    is_compiled = getattr(compiled, "in_compiled_autograd_region", False)
    return running_backward() != -1 and not is_compiled


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
