"""Play scenarios without the calls of one synchronization point.

A play without a call may end its process, as any wrong program may. So another process plays each
part (`processes/calls.py`), and the end of that process is an answer.
"""

from __future__ import annotations

import signal
import time
from collections.abc import Iterable, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace

from typing_extensions import override

from syncverify.errors import EnvironmentNotSupportedError, InternalError
from syncverify.explain.waits.answers import HarmWithout, WhyUndecided
from syncverify.explain.witness.witness_search import find_witness
from syncverify.judge.evidence import WrongGradient
from syncverify.judge.properties.lifecycle import fault_identity
from syncverify.playing.packed_subject import unpack_subject
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
from syncverify.sim.device.ignored_calls import ignoring
from syncverify.subjects.subject import Subject
from syncverify.trace.run import Fault
from syncverify.trace.source_files import naming_torch
from syncverify.trace.sync_points import SyncPoint


@dataclass(frozen=True, slots=True)
class PlayedPart:
    """Scenarios that one call plays without a point.

    Attributes:
        number: Place among the parts of the point, from 0.
        breaking: Violations of traces without the point, to show a wrong number of some
            scenario. With such violations no other scenario is played.
        choice: Schedules of each scenario.
    """

    subject: bytes
    point: SyncPoint
    number: int
    scenarios: tuple[Scenario, ...]
    breaking: tuple[FoundViolation, ...]
    choice: ScheduleChoice
    names_torch: bool
    deadline: float


@dataclass(frozen=True, slots=True)
class PlaysWithout:
    """Findings of plays without a point.

    Attributes:
        harm: The harm; None if nothing breaks.
        reason: Why it is not known that nothing breaks; "" if it is known, or something breaks.
        token: Scenario in which the process was lost; "" if it was not.
        wrong: A violation of each scenario that breaks with the point as well, and says nothing.
    """

    harm: HarmWithout | None = None
    reason: WhyUndecided = ""
    token: str = ""
    wrong: tuple[FoundViolation, ...] = ()


def play_without(part: PlayedPart) -> PlaysWithout:
    """Play the scenarios of a part until one breaks, or show the harm that traces have."""
    subject, backend = unpack_subject(part.subject), SimBackend()
    with naming_torch(is_on=part.names_torch):
        if part.breaking:
            return PlaysWithout(_shown(part, subject, backend))
        return _played(part, subject, backend)


def of_lost_process(part: PlayedPart, token: str, end: Lost) -> PlaysWithout:
    """Return the answer of a part that lost its process in the scenario of a token.

    Raises:
        InternalError: No scenario had started.
    """
    if not token:
        raise InternalError(f"{_ended(end)} before its first scenario")
    if part.breaking:
        return PlaysWithout(harm_of_model(part.breaking, _ended(end)))
    if end.signal == signal.SIGKILL:  # by the system, for memory, or by anybody
        return PlaysWithout(reason="process lost")
    name, cause = fault_identity(Fault(end.cause, (), end.how))
    renamed_token = renamed(token, name, cause)
    harm = HarmWithout(
        name, cause, renamed_token, is_of_model=False, outcome=_ended(end)
    )
    return PlaysWithout(harm, token=token)


def _ended(end: Lost) -> str:
    return f"the process that plays the ranks {end.how}"


def _played(part: PlayedPart, subject: Subject, backend: SimBackend) -> PlaysWithout:
    judge = Judge(subject, backend, part.choice, 0)
    judge.listener = schedules = _UnplayedSchedules()
    wrong = list[FoundViolation]()
    for scenario in part.scenarios:
        if time.monotonic() > part.deadline:
            return PlaysWithout(reason="time limit", wrong=tuple(wrong))
        try:
            with ignoring(part.point):
                judged = judge.judge_scenario(scenario, lambda _: DEFAULT_SCHEDULE)
        except EnvironmentNotSupportedError:
            return PlaysWithout(reason="not simulated", wrong=tuple(wrong))
        for found in [*judged.violations.values()][:1]:
            if not _is_there_with_call(found, subject, backend):
                return PlaysWithout(_of_play(found), wrong=tuple(wrong))
            wrong.append(found)
    reason: WhyUndecided = "schedules" if schedules.is_incomplete else ""
    return PlaysWithout(reason=reason, wrong=tuple(wrong))


def _is_there_with_call(
    found: FoundViolation, subject: Subject, backend: SimBackend
) -> bool:
    """Tell whether the subject breaks in the same way with all of its calls."""
    judge = Judge(subject, backend, ScheduleChoice("default"), 0)
    played = judge.judge_schedule(found.scenario, found.schedule)
    return found.violation.identity in played.violations


def _of_play(found: FoundViolation) -> HarmWithout:
    evidence, harm = found.violation.evidence, _harm(found, is_of_model=False)
    if isinstance(evidence, WrongGradient):
        numbers = evidence.expected, evidence.observed
        return _with_numbers(harm, found.violation.summary, *numbers)
    return replace(harm, outcome=found.violation.summary)


def _shown(part: PlayedPart, subject: Subject, backend: SimBackend) -> HarmWithout:
    """Play scenarios without the call of a needed point, for a wrong number."""
    for found in part.breaking:
        with ignoring(part.point), suppress(EnvironmentNotSupportedError):
            wrong = _wrong_number(found, subject, backend)
            if wrong is not None:
                return wrong
    return harm_of_model(part.breaking)


def harm_of_model(breaking: Sequence[FoundViolation], outcome: str = "") -> HarmWithout:
    """Return the harm that traces without a point show."""
    return replace(_harm(breaking[0], is_of_model=True), outcome=outcome)


def _wrong_number(
    found: FoundViolation, subject: Subject, backend: SimBackend
) -> HarmWithout | None:
    """Return the wrong gradient of a play, or of another legal order of its streams."""
    judge = Judge(subject, backend, ScheduleChoice("default"), 0)
    harm = _harm(found, is_of_model=True)
    played = judge.judge_schedule(found.scenario, found.schedule)
    for each in played.violations.values():
        evidence = each.violation.evidence
        if isinstance(evidence, WrongGradient):
            numbers = evidence.expected, evidence.observed
            return _with_numbers(harm, each.violation.summary, *numbers)
    of_order = [
        each.violation
        for each in played.violations.values()
        if each.violation.evidence.unordered is not None
    ]
    for violation in of_order:
        at = found.scenario, subject, backend, found.schedule
        witness = find_witness(violation, *at)
        if isinstance(witness, Witness):
            numbers = witness.expected, witness.observed
            return _with_numbers(harm, witness.outcome, *numbers)
    return None


@dataclass(slots=True)
class _UnplayedSchedules(RunListener):
    """Notes whether some scenario has schedules that were not played."""

    is_incomplete: bool = False

    @override
    def schedules_played(self, digest: bytes, coverage: ScheduleCoverage) -> None:
        """Note the part of a scenario's schedules that was played."""
        self.is_incomplete = self.is_incomplete or coverage.extent == RANDOM


def _harm(found: FoundViolation, *, is_of_model: bool) -> HarmWithout:
    violation = found.violation
    return HarmWithout(
        violation.property, violation.cause, found.token, is_of_model=is_of_model
    )


def _with_numbers(
    harm: HarmWithout,
    outcome: str,
    expected: Iterable[float] | None,
    observed: Iterable[float] | None,
) -> HarmWithout:
    return replace(
        harm,
        outcome=outcome,
        expected=None if expected is None else tuple(expected),
        observed=None if observed is None else tuple(observed),
    )
