"""The graph of a loss: functions of the program in it, and uses of parameters, each with its line.

We rely on a private name of torch: `_forward_cls` is the function of a node in the graph.
"""

import functools
import inspect
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from typing import Any, Final, NamedTuple
from unittest.mock import patch

import torch
from torch import nn
from torch.autograd import Function
from torch.autograd.graph import get_gradient_edge
from torch.overrides import TorchFunctionMode
from torch.utils._pytree import tree_leaves
from typing_extensions import override

from syncverify.judge.whole_step.mesh_play import Use
from syncverify.judge.whole_step.values import AppliedFunction
from syncverify.sim.device.torch_internals import (
    next_sequence_number,
    sequence_number_of,
)
from syncverify.trace.source_files import is_torch_line
from syncverify.trace.source_lines import Origin, SourceLine, first_line, lines_among
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
    # A class method, which torch 2.15 has in C++.
    apply = inspect.getattr_static(Function, "apply")

    def applies(cls: type[Function], *args: Any, **more: Any) -> Any:
        made = apply.__get__(None, cls)(*args, **more)
        for each in tree_leaves(made):
            if isinstance(each, torch.Tensor) and each.grad_fn is not None:
                node: _Node = each.grad_fn
                node.metadata.setdefault(_LINE, calling_line())
        return made

    with patch.object(Function, "apply", classmethod(applies)):
        yield


def functions_behind(tensors: Any) -> list[GraphFunction]:
    """Return the functions of the program behind losses, the nearest to the losses first."""
    losses = [each for each in tree_leaves(tensors) if isinstance(each, torch.Tensor)]
    leaves = dict[_Node, _Leaves]()
    for node in _nodes(losses):
        own = [node.variable] if hasattr(node, "variable") else []
        leaves[node] = frozenset(own).union(*(leaves[e] for e in _inputs(node)))
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


class ForwardLines(TorchFunctionMode):
    """The lines that make the nodes of autograd, by number; without those of custom functions."""

    def __init__(self) -> None:
        super().__init__()
        self.by_number = dict[int, Origin]()

    @override
    def __torch_function__(
        self, func: Callable[..., Any], types: Any, args: Any = (), kwargs: Any = None
    ) -> Any:
        first = next_sequence_number()
        result = func(*args, **(kwargs or {}))
        if made := range(first, next_sequence_number()):
            self.by_number |= dict.fromkeys(made, calling_line())
        return result


@contextmanager
def noted_uses(
    loss: torch.Tensor, parameters: Mapping[str, torch.Tensor], lines: ForwardLines
) -> Iterator[dict[str, Sequence[Use]]]:
    """Note uses by name in a backward pass within a block, in the order of the forward.

    A view that several layers share is one use.
    """
    trained = {name: each for name, each in parameters.items() if each.requires_grad}
    nodes = {name: get_gradient_edge(each).node for name, each in trained.items()}
    # By the number of the node that uses the parameter, and the index of its input.
    noted = {node: dict[tuple[int, int], Use]() for node in nodes.values()}

    def note(
        user: _Node, gradients: tuple[torch.Tensor | None, ...], _: object
    ) -> None:
        number = sequence_number_of(user)
        for index, (node, _) in enumerate(user.next_functions):
            if node in noted and (part := gradients[index]) is not None:
                line = lines.by_number.get(number)
                noted[node][number, index] = Use(part.clone(), line)

    found = dict[str, Sequence[Use]]()
    with ExitStack() as stack:
        for user in _nodes([loss]):
            if any(node in noted for node in _inputs(user)):
                hook = user.register_hook(functools.partial(note, user))
                stack.callback(hook.remove)
        yield found
    for name, node in nodes.items():
        found[name] = [use for _, use in sorted(noted[node].items())]


def _nodes(losses: Iterable[torch.Tensor]) -> Iterable[_Node]:
    """Return the nodes behind losses, each after all others that it needs."""
    found = dict[_Node, None]()
    stack = [each.grad_fn for each in losses if each.grad_fn is not None]
    while stack:
        if missing := [each for each in _inputs(stack[-1]) if each not in found]:
            stack += missing
        else:
            found[stack.pop()] = None
    return found


def _inputs(node: _Node) -> list[_Node]:
    return [each for each, _ in node.next_functions if each is not None]
