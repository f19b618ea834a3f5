"""Play scenarios with chosen schedules, and judge each run once."""

import math
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Protocol

from syncverify.judge.properties import judge_run
from syncverify.judge.properties.determinism import subject_is_deterministic
from syncverify.judge.properties.lifecycle import fault_identity
from syncverify.judge.violation import Identity as Identity
from syncverify.playing.program.modules.layers import require_same_gradients
from syncverify.playing.sim import SimBackend
from syncverify.scenario.features import refuses_plain_steps
from syncverify.scenario.replay_token import Reproducer
from syncverify.scenario.scenario import Scenario
from syncverify.scenario.schedule import (
    DEFAULT_SCHEDULE,
    DRAWN,
    FIRST,
    SAME,
    Decision,
    Schedule,
    ScheduleChoice,
    ScheduleCoverage,
)
from syncverify.search.budget import Budget, OutOfBudgetError, is_slow
from syncverify.search.found_violation import FoundViolation
from syncverify.search.isolation import shuffled_addresses
from syncverify.sim.process_wide.generators import other_chance
from syncverify.sim.turns.decisions import Decisions, SchedulePolicy
from syncverify.sim.turns.timings import OtherTimings, may_differ
from syncverify.subjects.subject import Subject
from syncverify.trace.records import CollectiveLaunch
from syncverify.trace.run import RankRun, Run

# Draws a schedule of up to a number of decisions.
Draw = Callable[[int], Schedule]


class Backend(Protocol):
    """A place where scenarios are played."""

    @property
    def name(self) -> str:
        """Name used in reports."""

    def run(self, scenario: Scenario, subject: Subject) -> Run:
        """Play a scenario."""


class RunListener:
    """Receives runs and schedules of a judge; a class that inherits ignores the others."""

    def run_judged(self, scenario: Scenario, run: Run, *, is_refused: bool) -> None:
        """Receive one run, and whether the subject refused plain steps, as it may."""

    def schedules_played(self, digest: bytes, coverage: ScheduleCoverage) -> None:
        """Receive the part of a scenario's schedules that was played."""


@dataclass(frozen=True, slots=True)
class JudgedRun:
    """One run and its violations."""

    violations: dict[Identity, FoundViolation]
    decisions: tuple[Decision, ...] = ()
    num_turns: int = 0  # of all ranks together
    branches: bool = False  # whether another schedule may have another result
    applied: tuple[str, ...] = ()
    launches_per_step: int = 0
    # Identity that the fault of the run has where no feature may be refused, and its step;
    # None for a run that came to its end.
    error: Identity | None = None
    ended_in: int | None = None

    @property
    def schedule(self) -> Schedule:
        """Return the schedule that leads to this run."""
        return Schedule.of(self.decisions)


# The first run that fails of all schedules, or else the default one; and what was played, None if a
# run that fails ended it early.
_Explored = tuple[JudgedRun, ScheduleCoverage | None]


@dataclass(slots=True)
class Judge:
    """Plays and judges: each scenario with each schedule once.

    `choice` says which schedules are played, `random_seed` is the seed of random priorities. A
    play may raise `OutOfBudgetError`.
    """

    subject: Subject
    backend: Backend
    choice: ScheduleChoice
    random_seed: int
    budget: Budget = field(default_factory=Budget)
    listener: RunListener = field(default_factory=RunListener)
    num_runs: int = 0
    # Hypothesis asks for the same scenario again while it shrinks, and the pass that shrinks
    # repeats the sequence of the pass that explores.
    # Scenarios are named by their digests: a search may play a hundred thousand scenarios.
    _judged_runs: dict[tuple[bytes, Schedule, bool], JudgedRun] = field(
        default_factory=dict
    )
    _explored: dict[bytes, _Explored] = field(default_factory=dict)

    def judge_scenario(
        self, scenario: Scenario, draw: Draw, *, twice: bool = False
    ) -> JudgedRun:
        """Return the first run of a scenario that fails, or else the default one.

        `draw` draws a schedule of up to a number of decisions. With `twice`, the default
        schedule is played twice, and both runs are compared.
        """
        first = self.judge_schedule(scenario, DEFAULT_SCHEDULE, twice=twice)
        if not isinstance(self.backend, SimBackend):
            return first
        judged, digest = first, scenario.digest()
        coverage: ScheduleCoverage | None
        coverage = ScheduleCoverage(FIRST if first.branches else SAME)
        if first.branches and not first.violations and self.choice.mode != "default":
            if self.choice.mode == "drawn":
                # Drawn after the first run, which tells how many decisions there can be.
                drawn = self.judge_schedule(scenario, draw(first.num_turns))
                judged = drawn if drawn.violations else first
                coverage = ScheduleCoverage(DRAWN)
            else:
                if digest not in self._explored:
                    self._explored[digest] = self._explore_schedules(scenario, first)
                judged, coverage = self._explored[digest]
        if coverage is not None:
            self.listener.schedules_played(digest, coverage)
        return judged

    def judge_schedule(
        self, scenario: Scenario, schedule: Schedule, *, twice: bool = False
    ) -> JudgedRun:
        """Return the run with one schedule, judged, from the cache if it was judged before.

        With `twice`, the schedule is played twice, and both runs are compared. Backends
        without schedules ignore `twice`: there two runs may differ, as timing differs.
        """
        twice = twice and isinstance(self.backend, SimBackend)
        key = (scenario.digest(), schedule, twice)
        if key not in self._judged_runs:
            again, decisions = None, Decisions(SchedulePolicy(schedule))
            if twice:
                with shuffled_addresses(), other_chance(int.from_bytes(key[0][:7])):
                    again = self._play(scenario, decisions)
            if again is not None and is_slow(again.fault, again.backend):
                # A time limit before the second run must not hide the verdict, a hang.
                run, again = again, None
            else:
                decisions = Decisions(SchedulePolicy(schedule))
                run = self._play(scenario, decisions)
            self._judged_runs[key] = self._judged(scenario, decisions, run, again)
        return self._judged_runs[key]

    def shown_in(
        self, scenario: Scenario, found: FoundViolation
    ) -> FoundViolation | None:
        """Return a violation as another scenario shows it with the same schedule, or None."""
        judged = self.judge_schedule(scenario, found.schedule)
        return judged.violations.get(found.violation.identity)

    def judge_reproducer(self, reproducer: Reproducer) -> JudgedRun:
        """Return a run like that of the search: played twice for a violation that two runs show."""
        twice = reproducer.property == subject_is_deterministic.__name__
        return self.judge_schedule(
            reproducer.scenario, reproducer.schedule, twice=twice
        )

    def _explore_schedules(self, scenario: Scenario, first: JudgedRun) -> _Explored:
        """Play other schedules until one fails, or all of the choice were played."""
        num_ranks, num_turns = scenario.mesh.num_ranks, first.num_turns
        timings = OtherTimings(self.choice, num_ranks, num_turns, self.random_seed)
        for decisions in timings:
            judged = self._judged(scenario, decisions, self._play(scenario, decisions))
            if judged.violations:
                return judged, None
        return first, timings.coverage

    def _judged(
        self,
        scenario: Scenario,
        decisions: Decisions,
        run: Run,
        again: Run | None = None,
    ) -> JudgedRun:
        fault, own = run.fault, self.subject.capabilities
        verdict = judge_run(scenario, run, own, again=again)
        self.budget.note(fault, run.backend, is_violated=bool(verdict.violations))
        if verdict.violations:
            # A layer that is another function now would make the subject guilty.
            require_same_gradients(scenario.module)
        is_refused = fault is not None and not verdict.violations
        is_refused = is_refused and refuses_plain_steps(scenario, own)
        self.listener.run_judged(scenario, run, is_refused=is_refused)
        taken = tuple(decisions.taken)
        launches = max(map(_num_launches, run.ranks), default=0)
        return JudgedRun(
            violations={
                each.identity: FoundViolation(
                    each, scenario, taken, tensors=own.tensors
                )
                for each in verdict.violations
            },
            decisions=taken,
            num_turns=len(decisions.turn_log),
            branches=may_differ(decisions, scenario.mesh.num_ranks),
            applied=verdict.applied,
            launches_per_step=math.ceil(launches / scenario.num_steps),
            error=None if fault is None else fault_identity(fault),
            ended_in=None if fault is None else fault.step or 0,
        )

    def _play(self, scenario: Scenario, decisions: Decisions) -> Run:
        # After a hang on GPUs each scenario would hang. Blame for that is the first one's.
        if getattr(self.backend, "is_lost", False):
            raise OutOfBudgetError
        self.budget.take_run()
        self.num_runs += 1
        if isinstance(self.backend, SimBackend):
            return self.backend.run(scenario, self.subject, decisions)
        return self.backend.run(scenario, self.subject)


def _num_launches(rank: RankRun) -> int:
    return sum(isinstance(record, CollectiveLaunch) for record in rank.trace)
