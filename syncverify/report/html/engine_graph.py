"""The autograd graph that the engine ran: nodes with their streams, order and hooks."""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any, Final, NamedTuple

from syncverify.report.html.autograd_graph import MOST_NODES, depths, plain_node
from syncverify.report.html.record_words import record_words
from syncverify.trace.engine_log import EnginePass, EngineStep, GraphNode
from syncverify.trace.run import RankRun
from syncverify.trace.timeline.engine import Owned, owners, passes_of, steps_in_order

_MOST_LINES: Final = 6


class GraphPoint(NamedTuple):
    """A node of the drawing, or one of its hooks.

    Attributes:
        node: Position of the node.
        hook: Position of the hook in the node; None for the node itself.
    """

    node: int
    hook: int | None = None


@dataclass(slots=True)
class DrawnGraph:
    """A graph that is being drawn.

    Attributes:
        of_rank: The rank's part of the run.
        passes: The passes that are drawn.
        nodes: Plain values of each node.
        edges: Pairs of positions in `nodes`.
        missing: Orders that are missing, or mistaken: ends and a text.
        owners: Step of each record of the trace.
        places: Positions in `nodes`, by number of the node.
        ends: Nodes and hooks of the drawing, by order of the step.
    """

    of_rank: RankRun
    passes: Sequence[EnginePass]
    nodes: list[dict[str, Any]] = field(default_factory=list)
    edges: list[tuple[int, int]] = field(default_factory=list)
    missing: list[dict[str, Any]] = field(default_factory=list)
    owners: list[Owned | None] = field(default_factory=list)
    places: dict[int | None, int] = field(default_factory=dict)
    ends: dict[int, GraphPoint] = field(default_factory=dict)

    def end_of(self, index: int) -> GraphPoint:
        """Return the node or hook that made a record; a new node if none is drawn."""
        owned = self.owners[index]
        if owned is not None and owned.step.order in self.ends:
            return self.ends[owned.step.order]
        record = self.of_rank.trace[index]
        lines = joined_lines([record_words(record)])
        return self.add_later(str(record.moment), lines)

    def add_later(self, name: str, lines: list[str]) -> GraphPoint:
        """Add a node for an event outside of the passes, or find it."""
        node = plain_node("later", name) | {"lines": lines}
        if node not in self.nodes:
            self.nodes.append(node)
        return GraphPoint(self.nodes.index(node))

    def parameter(self, name: str) -> int | None:
        """Return the place of the last node that accumulates a parameter's gradient, if any."""
        found = [
            place
            for place, node in enumerate(self.nodes)
            if node["kind"] == "parameter" and node["name"] == name
        ]
        return found[-1] if found else None

    def mark(self, end: GraphPoint) -> None:
        """Mark a node, or its hook, as one that the violation is about."""
        node = self.nodes[end.node]
        (node if end.hook is None else node["hooks"][end.hook])["guilty"] = True

    def values(self) -> dict[str, Any]:
        """Return the plain values of the graph."""
        own = [node for node in self.nodes if node["kind"] != "later"]
        deep = depths(len(own), self.edges)
        below = max(deep, default=0) + 1
        later = [below] * (len(self.nodes) - len(own))
        ran = [node for node in self.nodes if node["order"] is not None]
        streams = dict.fromkeys(node["stream"] for node in ran)
        return {
            "nodes": [
                {**node, "depth": depth}
                for node, depth in zip(self.nodes, [*deep, *later], strict=True)
            ],
            "edges": [list(edge) for edge in self.edges],
            "missing": self.missing,
            "streams": list(streams),
            "cut": len(own) == MOST_NODES,
            "ran": sorted(ran, key=lambda node: node["order"]),
        }


def drawn_graph(of_rank: RankRun, step: int, micro_batch: int) -> DrawnGraph | None:
    """Return the graph of a micro-batch's passes; None where they were not watched."""
    passes = passes_of(of_rank.engine, step, micro_batch)
    if not passes:
        return None
    graph = DrawnGraph(of_rank, passes)
    graph.owners = owners(of_rank.engine, len(of_rank.trace))
    _add_nodes(graph)
    _add_steps(graph)
    return graph


def _add_nodes(graph: DrawnGraph) -> None:
    numbered = [
        (each.first + at, node, each)
        for each in graph.passes
        for at, node in enumerate(each.nodes)
    ][:MOST_NODES]
    graph.places = {number: at for at, (number, _, _) in enumerate(numbered)}
    for number, node, of_pass in numbered:
        graph.nodes.append(_node_of(node))
        place = graph.places[number]
        graph.edges += [
            (place, graph.places[each])
            for each in node.following
            if each in graph.places
        ]
        if number == of_pass.first and of_pass.within in graph.places:
            graph.edges.append((graph.places[of_pass.within], place))


def _add_steps(graph: DrawnGraph) -> None:
    """Add the order, the stream, the hooks, and what each of them queued."""
    order = itertools.count(1)
    for step in steps_in_order(graph.passes):
        words = joined_lines(_made_by(graph, step))
        if step.node is None:
            graph.ends[step.order] = _add_callback(graph, step, words)
        elif step.node in graph.places:
            place = graph.places[step.node]
            node = graph.nodes[place]
            hook = None
            if step.hook is None:
                node |= {"order": next(order), "stream": step.stream, "lines": words}
            else:
                hook = len(node["hooks"])
                node["hooks"].append(_hook(step, words))
            graph.ends[step.order] = GraphPoint(place, hook)


def _add_callback(graph: DrawnGraph, step: EngineStep, lines: list[str]) -> GraphPoint:
    return graph.add_later(f"final callback {step.source}", lines)


def _hook(step: EngineStep, lines: list[str]) -> dict[str, Any]:
    name = step.source.function if step.source else ""
    return {
        "title": f"{step.hook} {name}",
        "source": str(step.source or ""),
        "lines": lines,
        "guilty": False,
    }


def _made_by(graph: DrawnGraph, step: EngineStep) -> Iterator[str]:
    """Yield what a step queued itself, outside of the steps within it."""
    for index in range(step.start, step.end):
        owned = graph.owners[index]
        if owned is not None and owned.step is step:
            yield record_words(graph.of_rank.trace[index])


def joined_lines(words: Iterator[str] | list[str]) -> list[str]:
    """Join equal neighbours, leave out empty ones, and end a long list with the number of the rest."""
    lines = []
    for text, same in itertools.groupby(filter(None, words)):
        count = len(list(same))
        lines.append(f"{text}, {count} times" if count > 1 else text)
    if len(lines) > _MOST_LINES:
        rest = len(lines) - _MOST_LINES + 1
        lines[_MOST_LINES - 1 :] = [f"and {rest} more"]
    return lines


def _node_of(node: GraphNode) -> dict[str, Any]:
    if node.name != "AccumulateGrad":
        return plain_node("function", node.name)
    return plain_node("parameter", node.parameter or "a tensor")
