"""Take each synchronization point of a subject out, and look for a scenario that breaks.

Note [Two ways to take a point out]
    In the model, the records of the point are taken out of the traces, and the traces are
    judged again. That is one edge of the happens-before graph less, and takes a millisecond.
    It shows work without an order, and no effect on what the host does. So a point without
    which all traces hold is taken out of the play as well: the simulated machine ignores the
    call at that line, and all properties are judged, with one schedule of each class.

    One point is taken out at a time. Of two points that do the same, each is superfluous
    beside the other one.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field, replace
from typing import Final

from syncverify.backends.sim import SimBackend
from syncverify.errors import UsageError
from syncverify.judge.evidence import WrongGradient
from syncverify.judge.ordering.removed_points import points_of, without
from syncverify.judge.properties import judge_run
from syncverify.scenario.scenario import Scenario
from syncverify.scenario.schedule import DEFAULT_SCHEDULE
from syncverify.scenario.token import Reproducer, encode
from syncverify.search.found_violation import FoundViolation
from syncverify.search.judge import Judge
from syncverify.search.schedules import RANDOM, ScheduleChoice, ScheduleCoverage
from syncverify.sim.device.ignored_calls import ignoring
from syncverify.sim.recording.rank_recorder import RankRecorder
from syncverify.subjects.subject import Subject
from syncverify.trace.run import Run
from syncverify.trace.source_lines import code_of_line
from syncverify.trace.sync_points import SyncPoint
from syncverify.waits.answers import Answer, HarmWithout, NeedWord, WhyUndecided
from syncverify.waits.exposed_time import Link, microseconds
from syncverify.waits.static_calls import calls_in
from syncverify.witness.witness import Witness
from syncverify.witness.witness_search import find_witness

# Classes of schedules of one scenario without a call.
_MOST_CLASSES: Final = 100
# Scenarios that may show the wrong number of a needed point.
_MOST_SHOWN: Final = 3

# Receives a stage, the number of scenarios that were played in it, and the number of all.
TellStage = Callable[[str, int, int], None]


@dataclass(slots=True)
class _Point:
    """What is known of one point."""

    scenarios: list[Scenario] = field(default_factory=list)
    breaking: list[FoundViolation] = field(default_factory=list)
    exposed: float = 0.0
    harm: HarmWithout | None = None
    reason: WhyUndecided = ""


@dataclass(slots=True)
class WaitSearch:
    """The search for the points of one subject that are needed.

    Attributes:
        subject: The synchronizer.
        link: Link of the exposed times.
        tell: Receives progress.
        deadline: Value of `time.monotonic()` after which nothing more is played.
    """

    subject: Subject
    link: Link
    tell: TellStage
    deadline: float | None = None
    _backend: SimBackend = field(default_factory=SimBackend)
    _points: dict[SyncPoint, _Point] = field(default_factory=dict)

    def answers(self, scenarios: list[Scenario]) -> tuple[Answer, ...]:
        """Return an answer for each point that the scenarios reach, and for calls that never ran.

        Raises:
            UsageError: The subject violates a property with all of its waits.
        """
        for number, scenario in enumerate(scenarios, start=1):
            self._take_out_of_traces(scenario)
            self.tell("traces without a wait", number, len(scenarios))
        for point, known in self._points.items():
            if known.breaking:
                known.harm = self._shown(point, known)
            else:
                self._take_out_of_plays(point, known)
        found = [self._answer(point, known) for point, known in self._points.items()]
        return tuple(
            sorted([*found, *self._never_ran()], key=lambda one: one.point[::-1])
        )

    def _take_out_of_traces(self, scenario: Scenario) -> None:
        run = self._played(scenario)
        self._require_right(scenario, run)
        traces = [rank.trace for rank in run.ranks]
        whole = microseconds(traces, self.link)
        for point in points_of(traces):
            known = self._points.setdefault(point, _Point())
            known.scenarios.append(scenario)
            if len(known.breaking) >= _MOST_SHOWN:
                continue
            rest = without(traces, point)
            saved = (whole - microseconds(rest, self.link)) / scenario.num_steps
            known.exposed = max(known.exposed, saved)
            ranks = zip(run.ranks, rest, strict=True)
            less = replace(
                run, ranks=tuple(replace(rank, trace=[*trace]) for rank, trace in ranks)
            )
            own = self.subject.capabilities
            for violation in judge_run(scenario, less, own).violations[:1]:
                known.breaking.append(FoundViolation(violation, scenario))

    def _played(self, scenario: Scenario) -> Run:
        recorders = [
            RankRecorder(keeps_everything=True) for _ in range(scenario.mesh.num_ranks)
        ]
        return self._backend.run(scenario, self.subject, recorders=recorders)

    def _require_right(self, scenario: Scenario, run: Run) -> None:
        own = self.subject.capabilities
        for violation in judge_run(scenario, run, own).violations[:1]:
            token = encode(Reproducer(*violation.identity, scenario))
            raise UsageError(
                f"{self.subject.name} violates {violation.property} with all of its waits: "
                f"{violation.summary}; mend that first: syncverify replay {token} "
                f"{self.subject.name}"
            )

    def _shown(self, point: SyncPoint, known: _Point) -> HarmWithout:
        """Play scenarios without the call of a needed point, for a wrong number."""
        first, *_ = known.breaking
        for found in known.breaking:
            with ignoring(point):
                wrong = self._wrong_number(found)
            if wrong is not None:
                return wrong
        return _harm(first, is_of_model=True)

    def _wrong_number(self, found: FoundViolation) -> HarmWithout | None:
        """Return the wrong gradient of a play, or of another legal order of its streams."""
        judge = Judge(self.subject, self._backend, ScheduleChoice("default"), 0)
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
        for violation in of_order[:1]:
            at = found.scenario, self.subject, self._backend, found.schedule
            witness = find_witness(violation, *at)
            if isinstance(witness, Witness):
                numbers = witness.expected, witness.observed
                return _with_numbers(harm, witness.outcome, *numbers)
        return None

    def _take_out_of_plays(self, point: SyncPoint, known: _Point) -> None:
        """Play all scenarios of a point without its call, until one breaks."""
        schedules = _LastSchedules()
        judge = Judge(
            self.subject, self._backend, ScheduleChoice("all", _MOST_CLASSES), 0
        )
        judge.listener = schedules
        total = len(known.scenarios)
        with ignoring(point):
            for number, scenario in enumerate(known.scenarios, start=1):
                if self.deadline is not None and time.monotonic() > self.deadline:
                    known.reason = "time limit"
                    return
                judged = judge.judge_scenario(scenario, lambda _: DEFAULT_SCHEDULE)
                for found in judged.violations.values():
                    known.harm = self._of_play(found)
                    return
                self.tell(f"plays without {point}", number, total)
        if schedules.is_incomplete:
            known.reason = "schedules"

    def _of_play(self, found: FoundViolation) -> HarmWithout:
        evidence, harm = found.violation.evidence, _harm(found, is_of_model=False)
        if isinstance(evidence, WrongGradient):
            numbers = evidence.expected, evidence.observed
            return _with_numbers(harm, found.violation.summary, *numbers)
        return replace(harm, outcome=found.violation.summary)

    def _answer(self, point: SyncPoint, known: _Point) -> Answer:
        word: NeedWord = "undecided" if known.reason else "superfluous"
        if known.harm is not None:
            word = "needed"
        return Answer(
            point,
            code_of_line(point.line),
            word,
            len(known.scenarios),
            known.harm,
            known.exposed,
            known.reason,
        )

    def _never_ran(self) -> Iterator[Answer]:
        """Yield an answer for each call in the subject's source that no scenario reached."""
        lines = {(point.line.file, point.line.number) for point in self._points}
        for point in calls_in(self.subject.factory, {file for file, _ in lines}):
            if (point.line.file, point.line.number) not in lines:
                yield Answer(
                    point, code_of_line(point.line), "undecided", 0, reason="never ran"
                )


@dataclass(slots=True)
class _LastSchedules:
    """A listener that notes whether some scenario has schedules that were not played."""

    is_incomplete: bool = False

    def run_judged(self, scenario: Scenario, run: Run) -> None:
        """Ignore a run."""

    def scenario_refused(self, digest: bytes) -> None:
        """Ignore a refusal that the contract allows."""

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
