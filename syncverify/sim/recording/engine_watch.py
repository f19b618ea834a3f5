"""Watch the autograd engine of one rank: the nodes that run, and the hooks of each.

Note [Hooks that a profiler sees]
    torch keeps hooks of nodes, of saved tensors and of the engine in C++, where Python cannot
    list them. But the engine calls each: a profiler sees the functions that begin right below
    the engine's frame. A node of its own hooks tells when it has run: hooks before that are
    hooks of a tensor or pre-hooks. Hooks in C++, such as those of DistributedDataParallel's
    reducer, have no function to show; the collectives that they launch have the node.

A watch costs a call for each function, so it is on for one play alone: that of a page.
"""

import functools
import inspect
import itertools
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from types import FrameType
from typing import Any, Final

import torch

from syncverify.sim.device.torch_internals import running_node
from syncverify.sim.recording.raw_accesses import RawPlace
from syncverify.trace.engine_log import EnginePass, EngineStep, graph_nodes, reachable
from syncverify.trace.engine_log import HookKind as Kind
from syncverify.trace.source_files import is_engine, may_hold_hooks
from syncverify.trace.source_lines import SourceLine
from syncverify.trace.stacks import line_of
from syncverify.trace.tensor_hooks import code_of

# A graph that is larger is not watched: no page could show it.
_MOST_NODES: Final = 3000
# Functions of torch below the engine that are parts of nodes, and no hooks.
_PARTS: Final = frozenset({"apply", "__torch_dispatch__", "__torch_function__"})


@dataclass(slots=True)
class _Span:
    """A step whose places in the trace are not known yet."""

    step: EngineStep
    start: RawPlace
    end: RawPlace | None = None

    def finished(self) -> EngineStep:
        start, end = self.start.index, (self.end or self.start).index
        return replace(self.step, start=start, end=end)


class EngineWatch:
    """Logs the backward passes of one rank, for its `RankRecorder`."""

    def __init__(self, recorder: Any) -> None:
        self.recorder = recorder
        self.order = itertools.count()
        # Each pass without its steps, and those.
        self._passes = list[tuple[EnginePass, list[_Span]]]()
        self._num_nodes = 0
        self._running = list[_Watched]()

    def run(self, run: Callable[[], Any], roots: Sequence[Any]) -> Any:
        """Return the result of a pass `run()` that starts from nodes, and log it."""
        nodes = reachable(roots, most=_MOST_NODES)
        if not self._can_watch(nodes):
            return run()
        numbers = {node: self._num_nodes + at for at, node in enumerate(nodes)}
        within = self._running[-1].number_of_running if self._running else None
        drawn = graph_nodes(numbers, self.recorder.parameters)
        opened = EnginePass(self.recorder.moment, self._num_nodes, drawn, (), within)
        self._num_nodes += len(nodes)
        watched = _Watched(self, numbers)
        self._passes.append((opened, watched.spans))
        self._running.append(watched)
        try:
            return watched.run(run)
        finally:
            self._running.pop()

    def _can_watch(self, nodes: Sequence[Any]) -> bool:
        """Tell whether the graph is small, the profiler is free, and no compiler takes hooks."""
        ours = self._running[-1].note if self._running else None
        compiler = sys.modules.get("torch._dynamo.compiled_autograd")
        is_compiled = getattr(compiler, "compiled_autograd_enabled", False)
        is_small = len(nodes) <= _MOST_NODES
        return is_small and not is_compiled and sys.getprofile() == ours

    def passes(self) -> list[EnginePass]:
        """Return the passes, after the places in the trace are known."""
        return [
            replace(opened, steps=tuple(each.finished() for each in spans))
            for opened, spans in self._passes
        ]


class _Watched:
    """One pass that is under way."""

    def __init__(self, watch: EngineWatch, numbers: dict[Any, int]) -> None:
        self._watch = watch
        self.spans = list[_Span]()
        self._numbers = numbers
        self._node: Any = None
        self._has_run = False  # the running node, apart from its later hooks
        self._span: _Span | None = None
        self._engine: FrameType | None = None
        self._hooks: dict[FrameType, _Span] = {}

    @property
    def number_of_running(self) -> int | None:
        return self._numbers.get(self._node)

    def run(self, run: Callable[[], Any]) -> Any:
        handles = [
            node.register_prehook(functools.partial(self._on_entry, node))
            for node in self._numbers
        ]
        before: Any = sys.getprofile()
        sys.setprofile(self.note)
        try:
            return run()
        finally:
            sys.setprofile(before)
            for handle in handles:
                handle.remove()
            for span in (self._span, *self._hooks.values()):
                self._close(span)
            self._engine = None
            self._hooks.clear()

    def _on_entry(self, node: Any, *_: object) -> None:
        self._enter(node)
        self._has_run = True

    def note(self, frame: FrameType, event: str, _: Any) -> None:
        """Take an event of the interpreter: a function begins or ends."""
        if event == "call" and self._engine is None:
            if is_engine(frame.f_code):
                self._engine = frame
        elif event == "call" and frame.f_back is self._engine:
            code = frame.f_code
            if code.co_name not in _PARTS and may_hold_hooks(code.co_filename):
                self._begin(frame)
        elif event == "return" and frame in self._hooks:
            self._close(self._hooks.pop(frame))

    def _begin(self, frame: FrameType) -> None:
        node = running_node()
        kind: Kind = "final callback"
        if node in self._numbers:
            self._enter(node)
            kind = self._kind(node, frame)
        elif node is None:
            self._close(self._span)
        else:  # of a graph that is not watched
            return
        source = line_of(frame.f_code, frame.f_lasti)
        self._hooks[frame] = self._open(node, kind, source)

    def _kind(self, node: Any, frame: FrameType) -> Kind:
        given = _arguments(frame)
        if not self._has_run:
            is_of_tensor = any(isinstance(each, torch.Tensor) for each in given)
            return "tensor hook" if is_of_tensor else "node pre-hook"
        # Hooks of a node take two tuples: gradients of its inputs, and of its outputs.
        if sum(isinstance(each, tuple) for each in given) > 1:
            return "node hook"
        variable = getattr(node, "variable", None)
        if variable is not None:
            hooks = getattr(variable, "_post_accumulate_grad_hooks", None) or {}
            codes = {code_of(each) for each in hooks.values()}
            return "post-accumulate hook" if frame.f_code in codes else "node hook"
        return "saved-tensor hook"

    def _enter(self, node: Any) -> None:
        if node is self._node:
            return
        self._close(self._span)
        self._node, self._has_run = node, False
        self._span = self._open(node, None, None)

    def _open(self, node: Any, hook: Kind | None, source: SourceLine | None) -> _Span:
        order, recorder = next(self._watch.order), self._watch.recorder
        which = order, self._numbers.get(node), recorder.current_stream()
        span = _Span(EngineStep(*which, 0, 0, hook, source), recorder.note_place())
        self.spans.append(span)
        return span

    def _close(self, span: _Span | None) -> None:
        if span is not None and span.end is None:
            span.end = self._watch.recorder.note_place()


def _arguments(frame: FrameType) -> list[Any]:
    """Return the positional arguments of a function that begins."""
    names, varargs, _, values = inspect.getargvalues(frame)
    own = names[: frame.f_code.co_argcount]
    return [*map(values.get, own), *values.get(varargs or "", ())]
