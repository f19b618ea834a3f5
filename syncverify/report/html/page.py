"""The model of the page: all that it shows, as plain JSON values."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from syncverify.replay_line import replay_line
from syncverify.report.html.autograd_graph import graph_of
from syncverify.report.html.contract_table import contract_table
from syncverify.report.html.engine_graph import drawn_graph
from syncverify.report.html.gradients import gradients_of
from syncverify.report.html.guilty_edges import mark_guilty, micro_batch_of
from syncverify.report.html.heat_map import heat_map
from syncverify.report.html.moment import timeline_values
from syncverify.report.html.program_words import program_words
from syncverify.report.report import Report
from syncverify.report.text import STATEMENTS, verdict, violation_text
from syncverify.report.witness import witness_lines
from syncverify.scenario import step_plan
from syncverify.scenario.contract import Capabilities
from syncverify.search.found_violation import FoundViolation
from syncverify.search.replayed import Replayed


def page_model(
    report: Report,
    capabilities: Capabilities,
    replays: Sequence[Replayed | None],
) -> dict[str, Any]:
    """Return the model of a report's page.

    Args:
        report: The report.
        capabilities: The contract of its subject.
        replays: For each violation of the report, the run that shows it, if there is one.

    Returns:
        Plain JSON values.
    """
    return {
        "subject": report.subject,
        "verdict": verdict(report),
        "failed": report.has_failed,
        "judged": not report.verifies_nothing,
        "facts": _facts(report),
        "explored": None if report.is_replay else _explored(report, capabilities),
        "violations": [
            _violation(report, entry, replay)
            for entry, replay in zip(report.violations, replays, strict=True)
        ],
    }


def _explored(report: Report, capabilities: Capabilities) -> dict[str, Any]:
    """Return what a search met; a replay, which has one scenario, has no such part."""
    return {
        "lines": [*report.summary.lines(), *report.lines.lines(), *report.explored],
        "contract": contract_table(report, capabilities),
        "coverage": heat_map(report.summary),
    }


def _facts(report: Report) -> list[list[str]]:
    searched = [["seed", str(report.seed)]] if not report.is_replay else []
    return [
        ["backend", report.backend],
        ["scenarios", f"{report.examples:,}"],
        *searched,
        ["contract", report.contract or "all features"],
        ["violations", str(len(report.violations))],
    ]


def _violation(
    report: Report, entry: FoundViolation, replay: Replayed | None
) -> dict[str, Any]:
    violation = entry.violation
    return {
        "property": violation.property,
        "cause": violation.cause,
        "statement": STATEMENTS[violation.property],
        "summary": violation.summary,
        "diagnosis": violation_text(entry, **report.names),
        "replay": replay_line(entry.token, **report.names),
        "timeline": None
        if replay is None
        else timeline_values(replay.run, replay.violation),
        "gradients": [] if replay is None else gradients_of(replay.judgement),
        "witness": [*witness_lines(entry.witness)],
        "graph": None if replay is None else _graph(entry, replay),
        "program": program_words(entry.scenario),
    }


def _graph(entry: FoundViolation, replay: Replayed) -> dict[str, Any] | None:
    """Return the graph of the micro-batch that the violation names, or of the last one.

    It is the graph that the engine ran, where the run has a log of that.
    """
    race = replay.race
    rank = race[0][0] if race else next(iter(entry.violation.ranks), None)
    rank = _within(rank, entry.scenario.mesh.num_ranks) or 0
    named = micro_batch_of(replay, rank) or _micro_batch(entry)
    if named is None:
        return None
    step, micro_batch = named
    where = {"rank": rank, "step": step, "micro_batch": micro_batch}
    graph = drawn_graph(replay.judgement.run.ranks[rank], step, micro_batch)
    if graph is None:
        return graph_of(entry.scenario, **where)
    mark_guilty(graph, replay, rank)
    return {**where, **graph.values()}


def _micro_batch(entry: FoundViolation) -> tuple[int, int] | None:
    """Return step and micro-batch that a violation names; the last one if it names none."""
    scenario, violation = entry.scenario, entry.violation
    step = _within(violation.evidence.step, scenario.num_steps) or 0
    count = step_plan.num_micro_batches(scenario, step)
    if not count:
        return None
    micro_batch = _within(violation.evidence.micro_batch, count)
    return step, count - 1 if micro_batch is None else micro_batch


def _within(number: object, count: int) -> int | None:
    """Return a number from 0 that is less than a count; None for anything else."""
    return number if isinstance(number, int) and 0 <= number < count else None
