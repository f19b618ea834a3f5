"""Search until the first violation, and shrink it: number of scenarios and time for both."""

from __future__ import annotations

import time
from dataclasses import dataclass, replace
from typing import NamedTuple

from syncverify.progress import Progress, SilentProgress
from syncverify.scenario.scenario import Scenario
from syncverify.scenario.schedule import ScheduleChoice
from syncverify.scenario.settings import Settings
from syncverify.search.drawing import Drawing, EndedError
from syncverify.search.found_violation import FoundViolation
from syncverify.search.judge import Backend, Judge, JudgedRun
from syncverify.search.occurrences import Occurrences
from syncverify.search.search import explore, judge_each_scenario
from syncverify.search.shrinking import shrink
from syncverify.subjects.subject import Subject


@dataclass(frozen=True, slots=True)
class FirstViolation:
    """The first violation of a search, shrunk, and its cost.

    Attributes:
        seconds: Time until the violation was met.
        found: The violation; None if there was none.
    """

    num_examples: int
    seconds: float
    found: FoundViolation | None = None
    seconds_to_shrink: float = 0.0


class FirstMet(NamedTuple):
    """The first violation of a search as it was met, and the scenarios up to it.

    Attributes:
        violation: The violation; None if there was none.
    """

    violation: FoundViolation | None
    num_examples: int


def find_first(
    subject: Subject,
    backend: Backend,
    settings: Settings,
    progress: Progress[FoundViolation],
) -> FirstViolation:
    """Return the first violation of a random sequence, shrunk.

    No scenario is drawn for a missing value, so that a longer sequence begins with a shorter
    one: the twin of a defect plays each scenario of the defect. If a scenario has several
    violations, the one that a report names first is shrunk.
    `progress` receives each scenario and each run for shrinking.
    """
    started = time.monotonic()
    drawing, judge = _search_of(subject, backend, settings)
    first, num_examples = _explore(drawing, judge, progress)
    seconds = time.monotonic() - started
    if first is None:
        return FirstViolation(num_examples, seconds)
    least = shrink(drawing, judge, first.violation.identity, first, progress)
    to_shrink = time.monotonic() - started - seconds
    return FirstViolation(num_examples, seconds, least, to_shrink)


def first_met(subject: Subject, backend: Backend, settings: Settings) -> FirstMet:
    """Play scenarios until the first violation, and do not shrink it.

    The last scenarios are those of missing values, as in `search`.

    Returns:
        The violation, and the number of scenarios up to it.
    """
    drawing, judge = _search_of(subject, backend, settings)
    until_one = replace(settings, stop_at_first=True)
    result = explore(judge, drawing, until_one, SilentProgress())
    return FirstMet(_first_reported(result.met), result.num_examples)


def _search_of(
    subject: Subject, backend: Backend, settings: Settings
) -> tuple[Drawing, Judge]:
    drawing = Drawing.of(subject.capabilities, settings)
    choice = ScheduleChoice.parse(settings.schedules)
    return drawing, Judge(subject, backend, choice, settings.random_seed)


def _explore(
    drawing: Drawing, judge: Judge, progress: Progress[FoundViolation]
) -> FirstMet:
    met = Occurrences()
    num_examples = 0

    def take(_: Scenario, judged: JudgedRun) -> None:
        nonlocal num_examples
        num_examples += 1
        progress.played(num_examples, len(judged.violations))
        if judged.violations:
            met.add(judged.violations)
            raise EndedError

    judge_each_scenario(drawing, judge, take)
    return FirstMet(_first_reported(met), num_examples)


def _first_reported(met: Occurrences) -> FoundViolation | None:
    return next((met.own[identity] for identity in met.reported()), None)
