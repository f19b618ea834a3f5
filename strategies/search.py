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

from strategies.drawing import Draw, Drawing, EndedError, ReproducedError
from strategies.judge import Backend, Identity, Judge, OutOfBudgetError, Verdict
from strategies.schedule_coverage import Knowledge
from strategies.search_result import (
    Found,
    Progress,
    SearchPlan,
    SearchResult,
    bulk,
    distinct,
)
from syncverify.coverage import Coverage
from syncverify.declared import Space
from syncverify.properties.determinism import subject_is_deterministic
from syncverify.scenario import Scenario
from syncverify.schedule import Schedule
from syncverify.subject import Subject

# Bounds on shrinking are counts, not seconds: the same seed gives the same report.
_MAX_SHRINK_RUNS = 300
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


def shrink(
    drawing: Drawing,
    judge: Judge,
    identity: Identity,
    first: Found,
    progress: Progress,
) -> Found:
    """Make a violation smaller, as far as runs are left for that.

    Args:
        drawing: The sequence of scenarios that led to it.
        judge: Who judged them.
        identity: Of the violation.
        first: Where it was met.
        progress: Told how it goes on.

    Returns:
        The last word of Hypothesis, which it shows again before it ends; where it is ended,
        what is least among all that it tried.
    """
    smallest = last = first
    has_ended = False
    judge.num_slow_runs, judge.runs_left = 0, _MAX_SHRINK_RUNS
    before = judge.num_runs
    twice = identity[0] == _DETERMINISM

    def probe(scenario: Scenario, draw: Draw) -> None:
        nonlocal smallest, last, has_ended
        runs = judge.num_runs
        try:
            verdict = judge.verdict(scenario, draw, twice=twice)
        except OutOfBudgetError:
            has_ended = True
            raise EndedError from None
        for number in range(runs, judge.num_runs):
            progress.shrinking(identity, number + 1 - before)
        if identity in verdict.violations:
            last = found_in(scenario, verdict, identity)
            smallest = min(smallest, last, key=lambda found: bulk(found.scenario))
            raise ReproducedError

    drawing.for_each(probe, Phase.generate, Phase.shrink)
    least = smallest if has_ended else last
    if not least.decisions:
        return least
    schedule = Schedule(tuple(d.chosen for d in least.decisions))
    with contextlib.suppress(OutOfBudgetError):
        simplest = judge.simplified(least.scenario, schedule, identity)
        return found_in(least.scenario, simplest, identity)
    return least


def found_in(scenario: Scenario, verdict: Verdict, identity: Identity) -> Found:
    """Put together what there is to know of a violation."""
    return Found(verdict.violations[identity], scenario, verdict.decisions)


def _chance(judge: Judge, found: list[Found]) -> list[Found]:
    """Play each violation twice: if it depends on chance, say so."""
    if any(entry.violation.property == _DETERMINISM for entry in found):
        return []
    for entry in found:
        judge.num_slow_runs, judge.runs_left = 0, 2
        schedule = Schedule(tuple(d.chosen for d in entry.decisions))
        with contextlib.suppress(OutOfBudgetError):
            verdict = judge.followed(entry.scenario, schedule, twice=True)
            for identity in verdict.violations:
                if identity[0] == _DETERMINISM:
                    return [found_in(entry.scenario, verdict, identity)]
    return []
