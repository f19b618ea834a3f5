"""Take each synchronization point out of the traces of scenarios, and judge the traces again."""

from __future__ import annotations

import time
from dataclasses import dataclass, field, replace
from typing import Final

from syncverify.errors import EnvironmentNotSupportedError
from syncverify.explain.waits.exposed_time import Link, microseconds
from syncverify.judge.ordering.kept_references import KIND as REFERENCE
from syncverify.judge.ordering.kept_references import dropped_at_once, kept_references
from syncverify.judge.ordering.removed_points import points_of, without
from syncverify.judge.properties import judge_run
from syncverify.playing.packed_subject import unpack_subject
from syncverify.playing.sim import SimBackend
from syncverify.scenario.scenario import Scenario
from syncverify.search.found_violation import FoundViolation
from syncverify.sim.recording.rank_recorder import RankRecorder
from syncverify.subjects.subject import Subject
from syncverify.trace.run import Run
from syncverify.trace.source_files import naming_torch
from syncverify.trace.sync_points import SyncPoint

# Scenarios that may show the wrong number of a needed point.
_MOST_SHOWN: Final = 3


@dataclass(frozen=True, slots=True)
class TracedPart:
    """Scenarios whose traces one call judges.

    Attributes:
        number: Place among all parts, from 0.
    """

    number: int
    subject: bytes
    scenarios: tuple[Scenario, ...]
    link: Link
    names_torch: bool
    deadline: float


@dataclass(slots=True)
class PointOfTraces:
    """Findings of traces about one point.

    Attributes:
        scenarios: Scenarios that reach it.
        breaking: Violations of traces without it, of the first few scenarios that have some.
        exposed: Most microseconds by which steps of a scenario end sooner without it, a step.
    """

    scenarios: list[Scenario] = field(default_factory=list)
    breaking: list[FoundViolation] = field(default_factory=list)
    exposed: float = 0.0


@dataclass(slots=True)
class TracesWithout:
    """Findings of the traces of scenarios about all points.

    Attributes:
        points: The points, in the order in which they were met.
        wrong: A violation of each scenario that breaks with all points, and says nothing of any.
        num_refused: Number of scenarios that the subject refused, as its contract allows.
        not_simulated: Why the simulated machine refused each of some scenarios.
        num_played: Number of scenarios that were played before the time limit.
    """

    points: dict[SyncPoint, PointOfTraces] = field(default_factory=dict)
    wrong: list[FoundViolation] = field(default_factory=list)
    num_refused: int = 0
    not_simulated: list[str] = field(default_factory=list)
    num_played: int = 0

    def add(self, other: TracesWithout) -> None:
        """Add the findings of the scenarios after these."""
        for point, more in other.points.items():
            known = self.points.setdefault(point, PointOfTraces())
            known.scenarios += more.scenarios
            known.breaking = [*known.breaking, *more.breaking][:_MOST_SHOWN]
            known.exposed = max(known.exposed, more.exposed)
        self.wrong += other.wrong
        self.num_refused += other.num_refused
        self.not_simulated += other.not_simulated
        self.num_played += other.num_played


def take_out_of_traces(part: TracedPart) -> TracesWithout:
    """Play each scenario once, with all points, and judge its traces without each."""
    subject, backend = unpack_subject(part.subject), SimBackend()
    found = TracesWithout()
    with naming_torch(is_on=part.names_torch):
        for scenario in part.scenarios:
            if time.monotonic() > part.deadline:
                break
            found.num_played += 1
            try:
                run = _played(scenario, subject, backend)
            except EnvironmentNotSupportedError as error:
                found.not_simulated.append(str(error))
                continue
            wrong = _violations(scenario, run, subject)
            found.wrong += wrong
            if not wrong:
                found.num_refused += run.fault is not None
                _take_out(scenario, run, subject, part, found.points)
    return found


def _played(scenario: Scenario, subject: Subject, backend: SimBackend) -> Run:
    count = scenario.mesh.num_ranks
    recorders = [RankRecorder(keeps_everything=True) for _ in range(count)]
    return backend.run(scenario, subject, recorders=recorders)


def _take_out(
    scenario: Scenario,
    run: Run,
    subject: Subject,
    part: TracedPart,
    points: dict[SyncPoint, PointOfTraces],
) -> None:
    traces = [rank.trace for rank in run.ranks]
    whole = microseconds(traces, part.link)
    for point in (*points_of(traces), *kept_references(traces)):
        known = points.setdefault(point, PointOfTraces())
        known.scenarios.append(scenario)
        if len(known.breaking) >= _MOST_SHOWN:
            continue
        take_out = dropped_at_once if point.kind == REFERENCE else without
        rest = take_out(traces, point)
        saved = (whole - microseconds(rest, part.link)) / scenario.num_steps
        known.exposed = max(known.exposed, saved)
        ranks = zip(run.ranks, rest, strict=True)
        less = tuple(replace(rank, trace=[*trace]) for rank, trace in ranks)
        known.breaking += _violations(scenario, replace(run, ranks=less), subject)


def _violations(scenario: Scenario, run: Run, subject: Subject) -> list[FoundViolation]:
    """Return the first violation of a run, if there is one."""
    found = judge_run(scenario, run, subject.capabilities).violations
    return [FoundViolation(each, scenario) for each in found[:1]]
