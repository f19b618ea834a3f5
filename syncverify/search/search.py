"""Search for violations: draw scenarios, judge them, shrink the failing ones.

Note [Two passes over one random sequence]
~~~~~~~~~~~~~~~~~~~~~~~~~~~~~~~~~~~~~~~~~~
The first pass plays every scenario and notes the identity (property and cause) of each
violation (Note [One defect, one violation] in `occurrences.py`). It shrinks nothing, so its
coverage depends on the seed and not on the defects. The second pass runs once per identity that
counts: the same seed leads to the same scenario again, and Hypothesis shrinks it as long as that
identity stays. Other violations of a scenario do not count then, so two defects do not turn
into one.

The judge caches each judged run by scenario and schedule, so the second pass plays only new
scenarios. Some scenarios are played twice on purpose, which shows a subject that depends on
chance: each scenario that is larger than all before it, the first few with several launches a
step, and the scenarios of violations in the end.
"""

import contextlib
import time
from collections.abc import Collection
from dataclasses import dataclass, replace

from syncverify.judge.properties.determinism import subject_is_deterministic
from syncverify.processes.calls import Crew
from syncverify.progress import Progress, SilentProgress
from syncverify.scenario.schedule import ScheduleChoice
from syncverify.scenario.settings import Settings
from syncverify.search.budget import AFTER_A_HANG, OutOfBudgetError, is_hang
from syncverify.search.campaign_file import CampaignFile
from syncverify.search.drawing import Drawing
from syncverify.search.exploration import Exploration, explore
from syncverify.search.found_violation import FoundViolation
from syncverify.search.judge import Backend, Identity, Judge
from syncverify.search.missing_values import num_reserved
from syncverify.search.occurrences import join_complements
from syncverify.search.result import SearchResult
from syncverify.search.sharded_search import PlacesMet, explore_in_shards
from syncverify.search.shrinking import shrink
from syncverify.subjects.subject import Subject

_DETERMINISM = subject_is_deterministic.__name__


def search(
    subject: Subject,
    backend: Backend,
    settings: Settings,
    progress: Progress[FoundViolation],
    known: Collection[Identity] = (),
    crew: Crew | None = None,
    campaign: CampaignFile | None = None,
) -> SearchResult:
    """Return the coverage, the statistics, and the shrunk violations of a subject.

    An earlier run has shrunk the violations `known`. A crew plays the search in shards, of which
    `campaign` keeps those that were played.
    """
    started = time.monotonic()
    drawing, judge = _search_of(subject, backend, settings)
    if settings.time_limit_seconds is not None:
        judge.budget.deadline = started + settings.time_limit_seconds
    places: PlacesMet = {}
    if crew is None:
        result = explore(judge, drawing, settings, progress)
    else:
        result, places = explore_in_shards(subject, settings, progress, crew, campaign)
    met, violations = result.met, result.violations
    join_complements(judge, met)
    counting = [*met.reported()][: 1 if settings.stop_at_first else None]
    # One more hang ends all shrinking.
    for identity in sorted(counting, key=lambda one: is_hang(one[1], backend.name)):
        if identity not in known:
            met_in, draws = places.get(identity, (drawing, None))
            least = shrink(met_in, judge, met.own[identity], progress, met, draws)
            violations.append(least)
            progress.shrunk(least)
    if chance := _of_chance(judge, violations):
        progress.found(chance)
        progress.shrunk(chance)
        violations.append(chance)
        met.add({chance.violation.identity: chance})
    # A hang while a scenario is made small is one too many for features beyond.
    hung = AFTER_A_HANG if judge.budget.num_hangs else ""
    result.stopped = result.stopped or hung
    result.seconds = time.monotonic() - started
    return result


def _of_chance(judge: Judge, known: list[FoundViolation]) -> FoundViolation | None:
    """Return a violation that shows chance: two plays of the scenario of a known one differ.

    None stands for plays that are all alike, and for chance that is known.
    """
    if any(each.violation.property == _DETERMINISM for each in known):
        return None
    for entry in known:
        if is_hang(entry.violation.cause, judge.backend.name):
            continue
        judge.budget.num_slow_runs, judge.budget.runs_left = 0, 2
        with contextlib.suppress(OutOfBudgetError):
            again = judge.judge_schedule(entry.scenario, entry.schedule, twice=True)
            for (name, _), found in again.violations.items():
                if name == _DETERMINISM:
                    return found
    return None


def _search_of(
    subject: Subject, backend: Backend, settings: Settings
) -> tuple[Drawing, Judge]:
    drawing = Drawing.of(subject.capabilities, settings)
    choice = ScheduleChoice.parse(settings.schedules)
    return drawing, Judge(subject, backend, choice, settings.random_seed)


@dataclass(frozen=True, slots=True)
class FirstViolation:
    """The first violation of a search, None if there was none, and its cost."""

    num_examples: int
    seconds: float  # until the violation was met
    found: FoundViolation | None = None
    seconds_to_shrink: float = 0.0


def find_first(
    subject: Subject, backend: Backend, settings: Settings
) -> FirstViolation:
    """Return the first violation of a random sequence, shrunk.

    No scenario is drawn for a missing value, so that a longer sequence begins with a shorter
    one: the twin of a defect plays each scenario of the defect. If a scenario has several
    violations, the one that a report names first is shrunk.
    """
    drawing, judge = _search_of(subject, backend, settings)
    first = _first_met(drawing, judge, settings, 0)
    if first.found is None:
        return first
    started = time.monotonic()
    least = shrink(drawing, judge, first.found, SilentProgress())
    seconds = time.monotonic() - started
    return replace(first, found=least, seconds_to_shrink=seconds)


def first_met(subject: Subject, backend: Backend, settings: Settings) -> FirstViolation:
    """Return the first violation of a search, as it was met.

    The last scenarios are those of missing values, as in `search`.
    """
    reserved = num_reserved(settings.examples)
    return _first_met(*_search_of(subject, backend, settings), settings, reserved)


def _first_met(
    drawing: Drawing, judge: Judge, settings: Settings, reserved: int
) -> FirstViolation:
    started, until_one = time.monotonic(), replace(settings, stop_at_first=True)
    exploration = Exploration(judge, until_one, SilentProgress(), reserved)
    exploration.play(drawing)
    met, seconds = exploration.met, time.monotonic() - started
    found = next((met.own[identity] for identity in met.reported()), None)
    return FirstViolation(exploration.coverage.num_scenarios, seconds, found)
