"""Search until the first violation: how soon is it met, and how small does it get?"""

from __future__ import annotations

import time
from dataclasses import dataclass

from hypothesis import Phase

from strategies.drawing import Draw, Drawing, EndedError
from strategies.judge import Backend, Judge, OutOfBudgetError
from strategies.search_result import (
    Found,
    Progress,
    SearchPlan,
    distinct,
    found_in,
)
from strategies.shrinking import shrink
from syncverify.scenario import Scenario
from syncverify.subject import Subject


@dataclass(frozen=True, slots=True)
class FirstViolation:
    """The first violation of a search.

    Attributes:
        num_examples: Scenarios played, the one that shows it included.
        seconds: How long that took.
        found: The violation; None if there is none.
        seconds_to_shrink: How long it took to make it small.
    """

    num_examples: int
    seconds: float
    found: Found | None = None
    seconds_to_shrink: float = 0.0


def find_first(
    subject: Subject, backend: Backend, plan: SearchPlan, progress: Progress
) -> FirstViolation:
    """Play scenarios until one shows a violation, and make that one small.

    Of several violations of one scenario it is the one that a report names first.

    Args:
        subject: The synchronizer under test.
        backend: Where scenarios are played.
        plan: What to search.
        progress: Told how it goes on.

    Returns:
        What was found, and how soon.
    """
    started = time.monotonic()
    judge = Judge(subject, backend, plan.choice, plan.random_seed, deadline=None)
    drawing = Drawing(
        subject.capabilities, plan.max_ranks, plan.num_examples, plan.random_seed
    )
    first, num_examples = _explore(drawing, judge, progress)
    seconds = time.monotonic() - started
    if first is None:
        return FirstViolation(num_examples, seconds)
    least = shrink(drawing, judge, first.violation.identity, first, progress)
    to_shrink = time.monotonic() - started - seconds
    return FirstViolation(num_examples, seconds, least, to_shrink)


def _explore(
    drawing: Drawing, judge: Judge, progress: Progress
) -> tuple[Found | None, int]:
    first: Found | None = None
    num_examples = largest = 0

    def explore(scenario: Scenario, draw: Draw) -> None:
        nonlocal first, num_examples, largest
        size = len(scenario.parameters) * scenario.mesh.num_ranks
        try:
            verdict = judge.verdict(scenario, draw, twice=size > largest)
        except OutOfBudgetError:
            raise EndedError from None
        largest = max(largest, size)
        num_examples += 1
        progress.played(num_examples, len(verdict.violations))
        if verdict.violations:
            first = found_in(scenario, verdict, distinct(verdict.violations)[0])
            raise EndedError

    drawing.for_each(explore, Phase.generate)
    return first, num_examples
