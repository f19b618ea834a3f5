"""The log of a rank's backward passes: nodes of the autograd engine, in the order of their run.

The passes are logged for report pages alone. Positions in them refer to the trace of the same rank.
"""

from collections import deque
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

import torch

from syncverify.trace.records import Moment
from syncverify.trace.source_lines import SourceLine

HookKind = Literal[
    "tensor hook", "node pre-hook", "saved-tensor hook", "post-accumulate hook",
    "node hook", "final callback",
]  # fmt: skip


@dataclass(frozen=True, slots=True)
class GraphNode:
    """One node of an autograd graph."""

    name: str  # such as `MulBackward0`
    parameter: str  # whose gradient the node accumulates; "" for others
    following: tuple[int, ...]  # numbers of the nodes that get gradients from it


@dataclass(frozen=True, slots=True)
class EngineStep:
    """The engine ran a node, or a hook while that node was running."""

    order: int  # number of steps of the rank that began before
    node: int | None  # number of the node; None for a callback after the last node
    stream: str
    start: int  # number of records that the trace held before
    end: int  # and afterwards
    hook: HookKind | None = None  # None for the node itself
    source: SourceLine | None = None  # first line of the hook's function


@dataclass(frozen=True, slots=True)
class EnginePass:
    """One call of the engine."""

    moment: Moment  # call of the rank program that was under way
    first: int  # number of its first node; numbers are unique on a rank
    nodes: tuple[GraphNode, ...]  # those that it may run, in breadth-first order
    steps: tuple[EngineStep, ...]  # in the order in which they began
    within: int | None = None  # node of an earlier pass that was running


def reachable(roots: Sequence[Any], most: int) -> list[Any]:
    """Return the nodes below some of torch's nodes, breadth first, until there are so many."""
    found = dict.fromkeys(roots)
    waiting = deque(found)
    while waiting and len(found) <= most:
        for node, _ in waiting.popleft().next_functions:
            if node is not None and node not in found:
                found[node] = None
                waiting.append(node)
    return [*found]


def graph_nodes(
    numbers: Mapping[Any, int], parameters: Mapping[str, torch.Tensor]
) -> tuple[GraphNode, ...]:
    """Return torch's nodes as values, of which each follows others by their numbers."""
    names = {id(each): name for name, each in parameters.items()}
    found = []
    for node in numbers:
        following = [numbers[e] for e, _ in node.next_functions if e in numbers]
        parameter = names.get(id(getattr(node, "variable", None)), "")
        name = node.name().rpartition("::")[2]
        found.append(GraphNode(name, parameter, tuple(dict.fromkeys(following))))
    return tuple(found)
