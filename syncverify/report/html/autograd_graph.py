"""The autograd graph of one micro-batch, where nobody saw the engine run it."""

from __future__ import annotations

from collections import deque
from typing import Any, Final

import torch

from syncverify.playing.program.graphs import cpp
from syncverify.playing.program.model import build_model
from syncverify.scenario.scenario import Scenario

MOST_NODES: Final = 300  # that a page draws


def graph_of(
    scenario: Scenario, *, rank: int, step: int, micro_batch: int
) -> dict[str, Any]:
    """Return the graph behind a micro-batch's loss, of plain tensors of local shapes.

    Returns:
        Nodes in the order of a breadth-first walk from the loss, with the depth of each:
        the longest way from the loss. Edges are pairs of positions.
    """
    cpp.prepare(spec.use for spec in scenario.parameters)
    cpu = torch.device("cpu")
    model = build_model(scenario, rank=rank, device=cpu, meshes=None)
    loss = model.loss(step=step, micro_batch=micro_batch)
    names = {id(each): name for name, each in model.parameters.items()}
    nodes, edges = _walked(loss)
    return {
        "rank": rank,
        "step": step,
        "micro_batch": micro_batch,
        "missing": [],
        "streams": [],
        "ran": [],
        "nodes": [
            {**_node(node, names), "depth": depth}
            for node, depth in zip(nodes, depths(len(nodes), edges), strict=True)
        ],
        "edges": [list(edge) for edge in edges],
        "cut": len(nodes) == MOST_NODES,
    }


def _walked(loss: torch.Tensor) -> tuple[list[Any], list[tuple[int, int]]]:
    assert loss.grad_fn is not None
    nodes = [loss.grad_fn]
    places = {loss.grad_fn: 0}
    edges = list[tuple[int, int]]()
    waiting = deque(nodes)
    while waiting:
        node = waiting.popleft()
        for following, _ in node.next_functions:
            if following is None:
                continue
            if following not in places and len(nodes) < MOST_NODES:
                places[following] = len(nodes)
                nodes.append(following)
                waiting.append(following)
            if following in places:
                edges.append((places[node], places[following]))
    return nodes, edges


def depths(count: int, edges: list[tuple[int, int]]) -> list[int]:
    """Return the longest way from the first node to each; the graph has no circle."""
    depths = [0] * count
    changed = True
    while changed:
        changed = False
        for tail, head in edges:
            if depths[head] <= depths[tail]:
                depths[head] = depths[tail] + 1
                changed = True
    return depths


def plain_node(kind: str, name: str) -> dict[str, Any]:
    """Return the values of a node that did not run."""
    return {
        "kind": kind,
        "name": name,
        "order": None,
        "stream": "",
        "lines": [],
        "hooks": [],
        "guilty": False,
    }


def _node(node: Any, names: dict[int, str]) -> dict[str, Any]:
    variable = getattr(node, "variable", None)
    if variable is not None:
        return plain_node("parameter", names.get(id(variable), "a tensor"))
    return plain_node("function", node.name().rpartition("::")[2])
