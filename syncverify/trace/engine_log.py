"""The log of a rank's backward passes: nodes of the autograd engine, in the order of their run.

The log is kept for report pages alone. Positions in it refer to the trace of the same rank.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Literal

from syncverify.trace.records import Moment
from syncverify.trace.source_lines import SourceLine

HookKind = Literal[
    "tensor hook",
    "node pre-hook",
    "saved-tensor hook",
    "post-accumulate hook",
    "node hook",
    "final callback",
]


@dataclass(frozen=True, slots=True)
class GraphNode:
    """One node of an autograd graph.

    Attributes:
        name: Name of the node, such as `MulBackward0`.
        parameter: Name of the parameter whose gradient the node accumulates; "" for others.
        following: Numbers of the nodes that get gradients from it.
    """

    name: str
    parameter: str
    following: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class EngineStep:
    """The engine ran a node, or a hook while that node was running.

    Attributes:
        order: Number of steps of the rank that began before.
        node: Number of the node; None for a callback after the last node.
        stream: Stream on which the engine ran it.
        start: Number of records that the trace held before.
        end: Number of records that the trace held afterwards.
        hook: Kind of the hook; None for the node itself.
        source: First line of the hook's function; None for the node itself.
    """

    order: int
    node: int | None
    stream: str
    start: int
    end: int
    hook: HookKind | None = None
    source: SourceLine | None = None


@dataclass(frozen=True, slots=True)
class EnginePass:
    """One call of the engine.

    Attributes:
        moment: Call of the rank program that was under way.
        first: Number of its first node: node i of `nodes` has number `first + i`. Numbers are
            unique on a rank.
        nodes: Nodes that it may run, in the order of a breadth-first walk.
        steps: Nodes and hooks in the order in which they began.
        within: Node of an earlier pass that was running; None outside of passes.
    """

    moment: Moment
    first: int
    nodes: tuple[GraphNode, ...]
    steps: tuple[EngineStep, ...]
    within: int | None = None


@dataclass(slots=True)
class EngineLog:
    """The passes of one rank, in the order in which they began."""

    passes: list[EnginePass] = field(default_factory=list)
