"""The autograd graph of a micro-batch: nodes with their streams, order and hooks, and what a violation is about.

Where nothing watched the engine, the graph is that of plain local tensors, of which no node ran.
"""

import itertools
from collections.abc import Iterable, Iterator, Mapping, Sequence
from graphlib import TopologicalSorter
from typing import Any, Final, NamedTuple

import torch

from syncverify.judge.properties.collectives import accumulation_is_local_until_reduced
from syncverify.playing.program.graphs import cpp
from syncverify.playing.program.model import build_model
from syncverify.report.html.moment import launches_of_events, short_name
from syncverify.scenario import step_plan
from syncverify.scenario.scenario import Scenario
from syncverify.search.found_violation import FoundViolation
from syncverify.search.replayed import Replayed
from syncverify.trace import records
from syncverify.trace.engine_log import (
    EnginePass,
    EngineStep,
    graph_nodes,
    reachable,
)
from syncverify.trace.run import RankRun
from syncverify.trace.source_lines import NoLine

_MOST_NODES: Final = 300
_MOST_LINES: Final = 6
_MOST_EDGES: Final = 8
_EARLY: Final = accumulation_is_local_until_reduced.__name__


def graph_values(entry: FoundViolation, replayed: Replayed) -> dict[str, Any] | None:
    """Return the graph of the micro-batch that a violation names, or of the last one."""
    scenario, race = entry.scenario, replayed.race
    rank = race[0][0] if race else next(iter(entry.violation.ranks), None)
    rank = _within(rank, scenario.mesh.num_ranks) or 0
    of_rank = replayed.judgement.run.ranks[rank]
    owners = _owners(of_rank)
    of_race = [index for of, index in reversed(race or ()) if of == rank]
    running = (owners[each] for each in (*of_race, *_launches(replayed, rank)))
    moments = (owner[0].moment for owner in running if owner is not None)
    # Step and micro-batch of the backward that the violation is about, if it is one.
    of_run = ((e.step, e.micro_batch) for e in moments if e.micro_batch is not None)
    named = next(of_run, None) or _named_micro_batch(entry)
    if named is None:
        return None
    wanted = records.Moment("backward", *named)
    watched = [each for each in of_rank.engine if each.moment == wanted]
    passes = watched or [_unwatched_pass(scenario, rank, wanted)]
    graph = _DrawnGraph(of_rank, passes, owners)
    if watched:
        _mark_guilty(graph, replayed, rank)
    where = {"rank": rank, "step": named[0], "micro_batch": named[1]}
    return {**where, **graph.values()}


def _within(number: object, count: int) -> int | None:
    """Return a number from 0 that is less than a count; None for anything else."""
    return number if isinstance(number, int) and 0 <= number < count else None


def _named_micro_batch(entry: FoundViolation) -> tuple[int, int] | None:
    """Return step and micro-batch that a violation names; the last one if it names none."""
    scenario, evidence = entry.scenario, entry.violation.evidence
    step = _within(evidence.step, scenario.num_steps) or 0
    count = step_plan.num_micro_batches(scenario, step)
    if not count:
        return None
    micro_batch = _within(evidence.micro_batch, count)
    return step, count - 1 if micro_batch is None else micro_batch


_Owners = Sequence[tuple[EnginePass, EngineStep] | None]


def _owners(of_rank: RankRun) -> _Owners:
    """Return the pass and the innermost node or hook that was running at each record."""
    found: list[tuple[EnginePass, EngineStep] | None] = [None] * len(of_rank.trace)
    for each in of_rank.engine:  # a pass within another one comes later
        for step in each.steps:
            found[step.start : step.end] = [(each, step)] * (step.end - step.start)
    return found


def _unwatched_pass(
    scenario: Scenario, rank: int, moment: records.Moment
) -> EnginePass:
    """Return the pass behind a micro-batch's loss of plain tensors of local shapes."""
    cpp.prepare(spec.use for spec in scenario.parameters)
    model = build_model(scenario, rank=rank, device=torch.device("cpu"), meshes=None)
    loss = model.loss(step=moment.step, micro_batch=moment.micro_batch or 0)
    nodes = reachable([loss.grad_fn], most=_MOST_NODES)
    numbers = {node: number for number, node in enumerate(nodes)}
    return EnginePass(moment, 0, graph_nodes(numbers, model.parameters), ())


class GraphPoint(NamedTuple):
    """A node of the drawing, or one of its hooks, by their positions."""

    node: int
    hook: int | None = None


class _DrawnGraph:
    """The graph of some passes of a rank's engine, as plain values."""

    def __init__(
        self, of_rank: RankRun, passes: Sequence[EnginePass], owners: _Owners
    ) -> None:
        self.of_rank = of_rank
        self.nodes = list[dict[str, Any]]()
        self.edges = list[tuple[int, int]]()  # positions in `nodes`
        self.missing = list[dict[str, Any]]()  # orders that are missing, or mistaken
        self.ends = dict[int, GraphPoint]()  # by order of the step
        self._owners = owners
        numbered = [
            (each.first + at, node, each)
            for each in passes
            for at, node in enumerate(each.nodes)
        ][:_MOST_NODES]
        self._places = {number: at for at, (number, _, _) in enumerate(numbered)}
        places = self._places
        for place, (number, node, of_pass) in enumerate(numbered):
            is_parameter = node.name == "AccumulateGrad"
            name = (node.parameter or "a tensor") if is_parameter else node.name
            self.nodes.append(_node("parameter" if is_parameter else "function", name))
            self.edges += [(place, places[e]) for e in node.following if e in places]
            if number == of_pass.first and of_pass.within in places:
                self.edges.append((places[of_pass.within], place))
        self._add_steps(step for each in passes for step in each.steps)

    def _add_steps(self, steps: Iterable[EngineStep]) -> None:
        """Add the order, the stream, the hooks, and what each of them queued."""
        order = itertools.count(1)
        for step in sorted(steps, key=lambda step: step.order):
            # What the step queued itself, outside of the steps within it.
            own = (
                _words(self.of_rank.trace[index])
                for index in range(step.start, step.end)
                if (owner := self._owners[index]) is not None and owner[1] is step
            )
            lines = _joined(own)
            if step.node is None:
                end = self.add_later(f"final callback {step.source}", lines)
                self.ends[step.order] = end
            elif step.node in self._places:
                place = self._places[step.node]
                node, hook = self.nodes[place], None
                if step.hook is None:
                    node |= {"order": next(order), "stream": step.stream}
                    node["lines"] = lines
                else:
                    hook = len(node["hooks"])
                    name = step.source.function if step.source else ""
                    title, source = f"{step.hook} {name}", str(step.source or "")
                    own_values = {"title": title, "source": source, "lines": lines}
                    node["hooks"].append({**own_values, "guilty": False})
                self.ends[step.order] = GraphPoint(place, hook)

    def end_of(self, index: int) -> GraphPoint:
        """Return the node or hook that made a record; a new node if none is drawn."""
        owner = self._owners[index]
        if owner is not None and owner[1].order in self.ends:
            return self.ends[owner[1].order]
        record = self.of_rank.trace[index]
        return self.add_later(str(record.moment), _joined([_words(record)]))

    def add_later(self, name: str, lines: list[str]) -> GraphPoint:
        """Add a node for an event outside of the passes, or find it."""
        node = _node("later", name) | {"lines": lines}
        if node not in self.nodes:
            self.nodes.append(node)
        return GraphPoint(self.nodes.index(node))

    def mark(self, end: GraphPoint) -> None:
        """Mark a node, or its hook, as one that the violation is about."""
        node = self.nodes[end.node]
        (node if end.hook is None else node["hooks"][end.hook])["guilty"] = True

    def add_missing(self, tail: GraphPoint, head: GraphPoint, label: str) -> None:
        """Add an edge between two nodes or hooks that the violation is about."""
        self.mark(tail)
        self.mark(head)
        self.missing.append({"tail": [*tail], "head": [*head], "label": label})

    def values(self) -> dict[str, Any]:
        """Return the plain values; nodes outside of the passes are below all others."""
        own = [node for node in self.nodes if node["kind"] != "later"]
        deep = _depths(len(own), self.edges)
        deep += [max(deep, default=0) + 1] * (len(self.nodes) - len(own))
        ran = [node for node in self.nodes if node["order"] is not None]
        return {
            "nodes": [
                {**node, "depth": depth}
                for node, depth in zip(self.nodes, deep, strict=True)
            ],
            "edges": [[*edge] for edge in self.edges],
            "missing": self.missing,
            "streams": [*dict.fromkeys(node["stream"] for node in ran)],
            "cut": len(own) == _MOST_NODES,
            "ran": sorted(ran, key=lambda node: node["order"]),
        }


def _node(kind: str, name: str) -> dict[str, Any]:
    """Return the values of a node that did not run."""
    ran: dict[str, Any] = {"order": None, "stream": "", "lines": [], "hooks": []}
    return {"kind": kind, "name": name, **ran, "guilty": False}


def _depths(count: int, edges: list[tuple[int, int]]) -> list[int]:
    """Return the longest way from the first node to each; the graph has no circle."""
    tails: dict[int, list[int]] = {node: [] for node in range(count)}
    for tail, head in edges:
        tails[head].append(tail)
    depths = [0] * count
    for node in TopologicalSorter(tails).static_order():
        depths[node] = max((depths[each] + 1 for each in tails[node]), default=0)
    return depths


def _joined(words: Iterable[str]) -> list[str]:
    """Join equal neighbours, leave out empty ones, and end a long list with the number of the rest."""
    lines = []
    for text, same in itertools.groupby(filter(None, words)):
        count = len(list(same))
        lines.append(f"{text}, {count} times" if count > 1 else text)
    if len(lines) > _MOST_LINES:
        rest = len(lines) - _MOST_LINES + 1
        lines[_MOST_LINES - 1 :] = [f"and {rest} more"]
    return lines


_DONE: Final[Mapping[type[records.TraceRecord], str]] = {
    records.CollectiveWait: "{0.stream} waits for a collective",
    records.StreamWait: "{0.stream} waits for an event",
    records.Mark: "records an event of {0.stream}",
    records.HostWait: "the host waits for an event",
    records.StorageFreed: "gives storage {0.storage} back to {0.stream}",
    records.StreamCreated: "makes {0.stream}",
}


def _words(record: records.TraceRecord) -> str:
    """Return what a record did, and on which stream; "" for what the engine did itself."""
    match record:
        case records.CollectiveLaunch(operation=operation, dtype=dtype):
            reduce_op = f" {record.reduce_op}" if record.reduce_op else ""
            of = f" of {record.numel} x {dtype}" if dtype else ""
            stream = record.communication_stream
            return f"launches {operation}{reduce_op}{of} on {stream}"
        case records.Access(source=source) if source == NoLine.AUTOGRAD:
            return ""
        case records.Access():
            by = " by the training program" if record.source == NoLine.OPTIMIZER else ""
            return f"{short_name(record.operator)}{by} on {record.stream}"
    return _DONE.get(type(record), "").format(record)


def _mark_guilty(graph: _DrawnGraph, replayed: Replayed, rank: int) -> None:
    """Mark what a violation is about.

    A race is an edge between its two records; a reduction that came too early, an edge to each
    accumulation after it. Any other violation marks the nodes of its parameters.
    """
    race = replayed.race
    if race is not None and race[0][0] == rank:
        first, second = (graph.end_of(index) for _, index in race)
        graph.add_missing(first, second, "nothing orders these")
        return
    for index in _launches(replayed, rank):
        later = [*itertools.islice(_later(graph, replayed, index), _MOST_EDGES)]
        for end in later:
            tail = graph.end_of(index)
            graph.add_missing(tail, end, "accumulated after the launch")
        if later:
            return
    # By parameter, the last node that accumulates its gradient.
    nodes = enumerate(graph.nodes)
    last = {node["name"]: at for at, node in nodes if node["kind"] == "parameter"}
    for name in replayed.violation.parameters:
        if name in last:
            graph.mark(GraphPoint(last[name]))


def _launches(replayed: Replayed, rank: int) -> list[int]:
    """Return the positions in the trace of a rank of the launches that a violation names."""
    launches = launches_of_events(replayed.violation, replayed.judgement.run)
    return [index for of, index in launches if of == rank]


def _later(graph: _DrawnGraph, replayed: Replayed, index: int) -> Iterator[GraphPoint]:
    """Yield the accumulations that came after a launch of the same gradients, in its step."""
    launch = graph.of_rank.trace[index]
    assert isinstance(launch, records.CollectiveLaunch)
    names = launch.parameters
    if not names and replayed.violation.property == _EARLY:
        names = replayed.violation.parameters
    for of_pass in graph.of_rank.engine:
        if of_pass.moment.step != launch.moment.step:
            continue
        for step in of_pass.steps:
            if step.hook is not None or step.node is None or step.start <= index:
                continue
            name = of_pass.nodes[step.node - of_pass.first].parameter
            if name and name in names:
                lines = [f"accumulates the gradient of {name}"]
                known = graph.ends.get(step.order)
                yield known or graph.add_later(f"{of_pass.moment}", lines)
