"""Take one synchronization point out: of the traces of scenarios, and of their plays.

A play without a call may end its process, as any wrong program may. So another process plays each
part (`processes/calls.py`), and the end of that process is an answer.
"""

from __future__ import annotations

import signal
import time
from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from typing import Final

from typing_extensions import override

from syncverify.errors import EnvironmentNotSupportedError, InternalError
from syncverify.explain.case import Case
from syncverify.explain.waits.answers import HarmWithout, WhyUndecided
from syncverify.explain.waits.exposed_time import Link, microseconds
from syncverify.explain.witness.witness_search import find_witness
from syncverify.judge.evidence import WrongGradient
from syncverify.judge.ordering.removed_points import kept_references, points_of, without
from syncverify.judge.properties import judge_run
from syncverify.judge.properties.lifecycle import fault_identity
from syncverify.judge.violation import Violation
from syncverify.playing.messages import unpack_subject
from syncverify.playing.sim import SimBackend
from syncverify.processes.owner_link import Lost
from syncverify.scenario.replay_token import renamed
from syncverify.scenario.scenario import Scenario
from syncverify.scenario.schedule import (
    DEFAULT_SCHEDULE,
    RANDOM,
    ScheduleChoice,
    ScheduleCoverage,
)
from syncverify.search.found_violation import FoundViolation, Witness
from syncverify.search.judge import Judge, RunListener
from syncverify.sim.recording.rank_recorder import RankRecorder
from syncverify.subjects.subject import Subject
from syncverify.trace.run import Fault, Run
from syncverify.trace.source_files import naming_torch
from syncverify.trace.sync_points import SyncPoint, ignoring

# An outcome in words, with the elements of the right and the wrong gradient, where known.
_Shown = tuple[str, Sequence[float] | None, Sequence[float] | None]
# Scenarios that may show the wrong number of a needed point.
_MOST_SHOWN: Final = 3
# Of one scenario without a call: as many classes as that at most.
_SCHEDULES: Final = ScheduleChoice("all", 100)


@dataclass(frozen=True, slots=True)
class Circumstances:
    """Values that all calls have in common."""

    subject: bytes
    names_torch: bool
    deadline: float
    link: Link


@dataclass(frozen=True, slots=True)
class Part:
    """Scenarios that one call plays without a point."""

    point: SyncPoint
    number: int  # place among the parts of the point, from 0
    scenarios: tuple[Scenario, ...]
    # Violations of traces without the point, to show a wrong number of some scenario. With such
    # violations no other scenario is played.
    breaking: tuple[FoundViolation, ...]


@dataclass(frozen=True, slots=True)
class PlaysWithout:
    """Findings of the plays of one part without a point."""

    harm: HarmWithout | None = None  # None if nothing breaks
    # Why it is not known that nothing breaks; "" if it is known, or something breaks.
    reason: WhyUndecided = ""
    token: str = ""  # scenario in which the process was lost; "" if it was not
    # A violation of each scenario that breaks with the point as well, and says nothing.
    wrong: tuple[FoundViolation, ...] = ()


@dataclass(slots=True)
class KnownPoint:
    """Findings about one point: of traces, and of plays, whose first part that breaks counts."""

    scenarios: list[Scenario] = field(default_factory=list)  # that reach it
    # Violations of traces without it, of the first few scenarios that have some.
    breaking: list[FoundViolation] = field(default_factory=list)
    # Most microseconds by which steps of a scenario end sooner without it, a step.
    exposed: float = 0.0
    parts: dict[int, PlaysWithout] = field(default_factory=dict)

    @property
    def known_parts(self) -> list[PlaysWithout]:
        """List the parts, up to the first one that breaks."""
        parts = [self.parts[number] for number in sorted(self.parts)]
        end = next((n for n, each in enumerate(parts, 1) if each.harm), len(parts))
        return parts[:end]

    @property
    def harm(self) -> HarmWithout | None:
        """The harm of the first part that breaks."""
        return next((each.harm for each in self.known_parts if each.harm), None)


@dataclass(slots=True)
class TracesWithout:
    """Findings of the traces of scenarios about all points, in the order in which they were met."""

    points: dict[SyncPoint, KnownPoint] = field(default_factory=dict)
    # A violation of each scenario that breaks with all points, and says nothing of any.
    wrong: list[FoundViolation] = field(default_factory=list)
    num_refused: int = 0  # scenarios that the subject refused, as its contract allows
    # Why the simulated machine refused each of some scenarios.
    not_simulated: list[str] = field(default_factory=list)
    num_played: int = 0  # scenarios that were played before the time limit

    def add(self, other: TracesWithout) -> None:
        """Add the findings of the scenarios after these."""
        for point, more in other.points.items():
            known = self.points.setdefault(point, KnownPoint())
            known.scenarios += more.scenarios
            known.breaking = [*known.breaking, *more.breaking][:_MOST_SHOWN]
            known.exposed = max(known.exposed, more.exposed)
        self.wrong += other.wrong
        self.num_refused += other.num_refused
        self.not_simulated += other.not_simulated
        self.num_played += other.num_played


def take_out_of_traces(
    common: Circumstances, numbered: tuple[int, Sequence[Scenario]]
) -> TracesWithout:
    """Play each scenario of a part once, with all points, and judge its traces without each."""
    subject, backend = unpack_subject(common.subject), SimBackend()
    found = TracesWithout()
    with naming_torch(is_on=common.names_torch):
        for scenario in numbered[1]:
            if time.monotonic() > common.deadline:
                break
            found.num_played += 1
            count = scenario.mesh.num_ranks
            recorders = [RankRecorder(keeps_everything=True) for _ in range(count)]
            try:
                run = backend.run(scenario, subject, recorders=recorders)
            except EnvironmentNotSupportedError as error:
                found.not_simulated.append(str(error))
                continue
            wrong = _violations(scenario, run, subject)
            found.wrong += wrong
            if wrong:
                continue
            found.num_refused += run.fault is not None
            traces = [rank.trace for rank in run.ranks]
            whole = microseconds(traces, common.link)
            for point in (*points_of(traces), *kept_references(traces)):
                known = found.points.setdefault(point, KnownPoint())
                known.scenarios.append(scenario)
                if len(known.breaking) >= _MOST_SHOWN:
                    continue
                rest = without(traces, point)
                saved = (whole - microseconds(rest, common.link)) / scenario.num_steps
                known.exposed = max(known.exposed, saved)
                ranks = zip(run.ranks, rest, strict=True)
                less = tuple(replace(rank, trace=[*trace]) for rank, trace in ranks)
                fewer = replace(run, ranks=less)
                known.breaking += _violations(scenario, fewer, subject)
    return found


def _violations(scenario: Scenario, run: Run, subject: Subject) -> list[FoundViolation]:
    """Return the first violation of a run, if there is one."""
    found = judge_run(scenario, run, subject.capabilities).violations
    return [FoundViolation(each, scenario) for each in found[:1]]


def play_without(common: Circumstances, part: Part) -> PlaysWithout:
    """Play the scenarios of a part until one breaks, or show the harm that traces have."""
    subject, backend = unpack_subject(common.subject), SimBackend()
    with naming_torch(is_on=common.names_torch):
        if not part.breaking:
            return _played(part, subject, backend, common.deadline)
        for found in part.breaking:
            with ignoring(part.point), suppress(EnvironmentNotSupportedError):
                for shown in _wrong_numbers(Case(found, subject, backend)):
                    return PlaysWithout(harm_of(found, *shown))
        return PlaysWithout(harm_of(part.breaking[0]))


def of_lost_process(part: Part, token: str, end: Lost) -> PlaysWithout:
    """Return the answer of a part that lost its process in the scenario of a token."""
    ended = f"the process that plays the ranks {end.how}"
    if not token:
        raise InternalError(f"{ended} before its first scenario")
    if part.breaking:
        return PlaysWithout(harm_of(part.breaking[0], ended))
    if end.signal == signal.SIGKILL:  # by the system, for memory, or by anybody
        return PlaysWithout(reason="process lost")
    name, cause = fault_identity(Fault(end.cause, (), end.how))
    renamed_token = renamed(token, name, cause)
    harm = HarmWithout(name, cause, renamed_token, is_of_model=False, outcome=ended)
    return PlaysWithout(harm, token=token)


def _played(
    part: Part, subject: Subject, backend: SimBackend, deadline: float
) -> PlaysWithout:
    judge = Judge(subject, backend, _SCHEDULES, 0)
    judge.listener = schedules = _UnplayedSchedules()
    wrong = list[FoundViolation]()
    for scenario in part.scenarios:
        if time.monotonic() > deadline:
            return PlaysWithout(reason="time limit", wrong=tuple(wrong))
        try:
            with ignoring(part.point):
                judged = judge.judge_scenario(scenario, lambda _: DEFAULT_SCHEDULE)
        except EnvironmentNotSupportedError:
            return PlaysWithout(reason="not simulated", wrong=tuple(wrong))
        for found in [*judged.violations.values()][:1]:
            # The subject may break in the same way with all of its calls.
            shown = _shown_by(Case(found, subject, backend))
            known = {each.found.violation.identity for each in shown}
            if found.violation.identity not in known:
                harm = harm_of(found, *_shown(found.violation), is_of_model=False)
                return PlaysWithout(harm, wrong=tuple(wrong))
            wrong.append(found)
    reason: WhyUndecided = "schedules" if schedules.is_incomplete else ""
    return PlaysWithout(reason=reason, wrong=tuple(wrong))


def _shown_by(case: Case) -> list[Case]:
    """Play the scenario of a violation; return all violations."""
    judge = Judge(case.subject, case.backend, ScheduleChoice("default"), 0)
    judged = judge.judge_schedule(case.found.scenario, case.found.schedule)
    return [replace(case, found=each) for each in judged.violations.values()]


def _wrong_numbers(case: Case) -> Iterator[_Shown]:
    """Yield the wrong gradients of a play, and of other legal orders of its streams."""
    shown = _shown_by(case)
    for each in shown:
        if isinstance(each.found.violation.evidence, WrongGradient):
            yield _shown(each.found.violation)
    for witness in map(find_witness, shown):
        if isinstance(witness, Witness):
            yield witness.outcome, witness.expected, witness.observed


@dataclass(slots=True)
class _UnplayedSchedules(RunListener):
    """Notes whether some scenario has schedules that were not played."""

    is_incomplete: bool = False

    @override
    def schedules_played(self, digest: bytes, coverage: ScheduleCoverage) -> None:
        self.is_incomplete = self.is_incomplete or coverage.extent == RANDOM


def _shown(violation: Violation) -> _Shown:
    """Return a violation in words, with the elements of a wrong gradient."""
    match violation.evidence:
        case WrongGradient(expected=expected, observed=observed):
            return violation.summary, expected, observed
    return violation.summary, None, None


def harm_of(
    found: FoundViolation,
    outcome: str = "",
    *elements: Sequence[float] | None,
    is_of_model: bool = True,
) -> HarmWithout:
    """Return the harm that a violation shows, with elements of the right and the wrong gradient."""
    shown = (None if each is None else tuple(each) for each in elements)
    identity, token = found.violation.identity, found.token
    return HarmWithout(*identity, token, is_of_model, outcome, *shown)
