"""Search for violations: draw scenarios, judge them, shrink what fails.

Two passes over the same random sequence. The first plays every scenario and notes the
identity (property and cause) of each violation. The second runs once per identity: the
same seed leads to the same scenario, which Hypothesis then shrinks as long as that very
identity stays. Verdicts are cached by scenario and schedule, so nothing is played twice
but to see whether that is the same: each scenario that is larger than all before it, and
each violation in the end.
"""

from __future__ import annotations

import contextlib
import time

from hypothesis import Phase

from strategies.drawing import Draw, Drawing, EndedError
from strategies.judge import Backend, Identity, Judge, OutOfBudgetError
from strategies.schedule_coverage import Knowledge
from strategies.search_result import (
    Found,
    Progress,
    SearchPlan,
    SearchResult,
    distinct,
    found_in,
)
from strategies.shrinking import shrink
from syncverify.coverage import Coverage
from syncverify.declared import Space
from syncverify.properties.determinism import subject_is_deterministic
from syncverify.scenario import Scenario
from syncverify.subject import Subject

_DETERMINISM = subject_is_deterministic.__name__


def search(
    subject: Subject, backend: Backend, plan: SearchPlan, progress: Progress
) -> SearchResult:
    """Search for violations of a subject on a backend.

    Args:
        subject: The synchronizer under test.
        backend: Where scenarios are played.
        plan: What to search.
        progress: Told how it goes on.

    Returns:
        What was covered and found.
    """
    started = time.monotonic()
    limit = plan.time_limit_seconds
    deadline = None if limit is None else started + limit
    judge = Judge(subject, backend, plan.choice, plan.random_seed, deadline)
    drawing = Drawing(
        subject.capabilities, plan.max_ranks, plan.num_examples, plan.random_seed
    )
    coverage, met, played = _explore(drawing, judge, progress)
    overlaps = (judge.num_overlaps, judge.num_overlaps_possible)
    held = judge.held
    found = [
        shrink(drawing, judge, identity, met[identity], progress)
        for identity in distinct(met)
        if identity not in plan.known
    ]
    return SearchResult(
        coverage.num_scenarios,
        time.monotonic() - started,
        coverage,
        [*found, *_chance(judge, found)],
        played,
        overlaps,
        held,
    )


def _explore(
    drawing: Drawing, judge: Judge, progress: Progress
) -> tuple[Coverage, dict[Identity, Found], list[Knowledge]]:
    coverage = Coverage(Space(drawing.capabilities, drawing.max_ranks))
    met: dict[Identity, Found] = {}
    largest = 0

    def explore(scenario: Scenario, draw: Draw) -> None:
        nonlocal largest
        size = len(scenario.parameters) * scenario.mesh.num_ranks
        try:
            verdict = judge.verdict(scenario, draw, twice=size > largest)
        except OutOfBudgetError:
            raise EndedError from None
        largest = max(largest, size)
        for identity in verdict.violations:
            met.setdefault(identity, found_in(scenario, verdict, identity))
        coverage.add(scenario, verdict.applied)
        progress.played(coverage.num_scenarios, len(met))

    drawing.for_each(explore, Phase.generate)
    return coverage, met, list(judge.known.values())


def _chance(judge: Judge, found: list[Found]) -> list[Found]:
    """Play each violation twice: if it depends on chance, say so."""
    if any(entry.violation.property == _DETERMINISM for entry in found):
        return []
    for entry in found:
        judge.num_slow_runs, judge.runs_left = 0, 2
        with contextlib.suppress(OutOfBudgetError):
            verdict = judge.followed(entry.scenario, entry.schedule, twice=True)
            for identity in verdict.violations:
                if identity[0] == _DETERMINISM:
                    return [found_in(entry.scenario, verdict, identity)]
    return []
