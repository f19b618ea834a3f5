"""The edges of the engine's graph that a violation is about, and the nodes at their ends."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import islice
from typing import Final

from syncverify.judge.properties.collectives import (
    accumulation_is_local_until_reduced,
)
from syncverify.report.html.engine_graph import DrawnGraph, GraphPoint
from syncverify.report.html.moment import launches_of_events
from syncverify.search.replayed import Replayed, race_of
from syncverify.trace.engine_log import EnginePass, EngineStep
from syncverify.trace.records import CollectiveLaunch
from syncverify.trace.timeline.engine import owners

_MOST_EDGES: Final = 8
_EARLY: Final = accumulation_is_local_until_reduced.__name__


def micro_batch_of(replayed: Replayed, rank: int) -> tuple[int, int] | None:
    """Return step and micro-batch of the backward that a violation is about, if it is one."""
    of_rank = replayed.judgement.run.ranks[rank]
    owned = owners(of_rank.engine, len(of_rank.trace))
    for index in _named(replayed, rank):
        moment = None if (owner := owned[index]) is None else owner.of_pass.moment
        if moment is not None and moment.micro_batch is not None:
            return moment.step, moment.micro_batch
    return None


def mark_guilty(graph: DrawnGraph, replayed: Replayed, rank: int) -> None:
    """Mark what a violation is about.

    A race is an edge between its two records; a reduction that came too early, an edge to each
    accumulation after it. Any other violation marks the nodes of its parameters.
    """
    race = race_of(replayed)
    if race is not None and race[0][0] == rank:
        ends = [graph.end_of(index) for _, index in race]
        _add(graph, ends[0], ends[1], "nothing orders these")
        return
    for index in _launches(replayed, rank):
        later = list(islice(_later(graph, replayed, index), _MOST_EDGES))
        for end in later:
            _add(graph, graph.end_of(index), end, "accumulated after the launch")
        if later:
            return
    for name in replayed.violation.parameters:
        place = graph.parameter(name)
        if place is not None:
            graph.mark(GraphPoint(place))


def _named(replayed: Replayed, rank: int) -> Iterator[int]:
    """Yield positions in the trace of a rank that a violation names."""
    race = race_of(replayed)
    if race is not None:
        yield from (index for of, index in reversed(race) if of == rank)
    yield from _launches(replayed, rank)


def _launches(replayed: Replayed, rank: int) -> list[int]:
    run = replayed.judgement.run
    launches = launches_of_events(replayed.violation, run)
    return [index for of, index in launches if of == rank]


def _later(graph: DrawnGraph, replayed: Replayed, index: int) -> Iterator[GraphPoint]:
    """Yield the accumulations that came after a launch of the same gradients, in its step."""
    launch = graph.of_rank.trace[index]
    assert isinstance(launch, CollectiveLaunch)
    names = launch.parameters
    if not names and replayed.violation.property == _EARLY:
        names = replayed.violation.parameters
    for of_pass in graph.of_rank.engine.passes:
        if of_pass.moment.step == launch.moment.step:
            for step, name in _accumulations(of_pass):
                if step.start > index and name in names:
                    yield _end(graph, of_pass, step, name)


def _accumulations(of_pass: EnginePass) -> Iterator[tuple[EngineStep, str]]:
    for step in of_pass.steps:
        if step.hook is None and step.node is not None:
            name = of_pass.nodes[step.node - of_pass.first].parameter
            if name:
                yield step, name


def _end(
    graph: DrawnGraph, of_pass: EnginePass, step: EngineStep, name: str
) -> GraphPoint:
    if step.order in graph.ends:
        return graph.ends[step.order]
    return graph.add_later(f"{of_pass.moment}", [f"accumulates the gradient of {name}"])


def _add(graph: DrawnGraph, tail: GraphPoint, head: GraphPoint, label: str) -> None:
    for end in (tail, head):
        graph.mark(end)
    graph.missing.append({"tail": list(tail), "head": list(head), "label": label})
