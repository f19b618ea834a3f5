"""The autograd functions of a program in the graph of a loss, and the parameters behind their inputs.

We rely on a private name of torch: `_forward_cls` is the function of a node in the graph.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any, Final, NamedTuple
from unittest.mock import patch

import torch
from torch import nn
from torch.autograd import Function
from torch.utils._pytree import tree_leaves

from syncverify.judge.whole_step.values import AppliedFunction
from syncverify.trace.source_files import is_torch_line
from syncverify.trace.source_lines import SourceLine, first_line, lines_among
from syncverify.trace.stacks import calling_line

_LINE: Final = "syncverify line"  # key of a node's notes
_Leaves = frozenset[torch.Tensor]
_Node = Any  # types of torch lack some attributes of a `Node` of the graph


class GraphFunction(NamedTuple):
    """A function of the program in a graph."""

    name: str
    lines: tuple[SourceLine, ...]
    behind: tuple[_Leaves, ...]  # the leaves of the graph behind each input


class Leaves:
    """The parameters that leaves of the graph stand for, on one rank.

    FSDP2 puts gathered tensors in the place of its shards while a module runs, and these are in the graph.
    """

    def __init__(self, parameters: Iterable[torch.Tensor]) -> None:
        self._parameter_of = {each: each for each in parameters}
        self._held = dict[tuple[nn.Module, str], torch.Tensor]()

    def sees_start(self, module: nn.Module) -> None:
        """Note which parameters a module has, and the modules in it, before it runs."""
        for each in module.modules():
            for name, held in each.named_parameters(recurse=False):
                if held in self._parameter_of:
                    self._held.setdefault((each, name), held)

    def sees_end(self, module: nn.Module) -> None:
        """Note which tensors a module had in their place."""
        for name, leaf in module.named_parameters(recurse=False):
            if (held := self._held.get((module, name))) is not None:
                self._parameter_of[leaf] = held

    def named(
        self, function: GraphFunction, names: Mapping[torch.Tensor, str]
    ) -> AppliedFunction:
        """Return a function with the names of parameters."""
        behind = (
            {self._parameter_of[leaf] for leaf in each if leaf in self._parameter_of}
            for each in function.behind
        )
        named = (frozenset(names[e] for e in each if e in names) for each in behind)
        return AppliedFunction(function.name, function.lines, tuple(named))


@contextmanager
def lines_noted() -> Iterator[None]:
    """Let nodes of the graph know the line that applied their function, within a block.

    A program that has taken `apply` from its class before hides the line.
    """
    apply = Function.apply.__func__  # type: ignore[attr-defined]  # a class method

    def applies(cls: type[Function], *args: Any, **more: Any) -> Any:
        made = apply(cls, *args, **more)
        for each in tree_leaves(made):
            if isinstance(each, torch.Tensor) and each.grad_fn is not None:
                node: _Node = each.grad_fn
                node.metadata.setdefault(_LINE, calling_line())
        return made

    with patch.object(Function, "apply", classmethod(applies)):
        yield


def functions_behind(tensors: Any) -> list[GraphFunction]:
    """Return the functions of the program behind losses, the nearest to the losses first."""
    leaves = dict[_Node, _Leaves]()
    for each in tree_leaves(tensors):
        if isinstance(each, torch.Tensor) and each.grad_fn is not None:
            _find_leaves(each.grad_fn, leaves)
    found = list[GraphFunction]()
    for node in reversed(leaves):
        function = getattr(node, "_forward_cls", None)
        if function is None or (line := first_line(function.backward)) is None:
            continue
        if not is_torch_line(line.file):
            lines = (*lines_among([node.metadata.get(_LINE)]), line)
            behind = tuple(leaves[each] for each in _inputs(node))
            found.append(GraphFunction(function.__name__, lines, behind))
    return found


def _find_leaves(root: _Node, leaves: dict[_Node, _Leaves]) -> None:
    """Note the leaves behind a node and behind all others that it needs, those first."""
    stack = [root]
    while stack:
        node = stack[-1]
        if missing := [each for each in _inputs(node) if each not in leaves]:
            stack += missing
            continue
        stack.pop()
        is_leaf = node.name().endswith("AccumulateGrad")
        own = [node.variable] if is_leaf else []
        leaves[node] = frozenset(own).union(*(leaves[e] for e in _inputs(node)))


def _inputs(node: _Node) -> list[_Node]:
    return [each for each, _ in node.next_functions if each is not None]
