"""Play scenarios with the schedules that count, and judge each run once."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from itertools import islice
from typing import Protocol, runtime_checkable

from strategies.disturbance import disturbed_addresses
from strategies.schedule_choice import ScheduleChoice
from strategies.schedule_coverage import (
    COMPLETE,
    DRAWN,
    FIRST,
    RANDOM,
    SAME,
    Knowledge,
)
from syncverify.ordering.held_memory import HeldMemory, held_memory
from syncverify.properties import applied, check, overlap
from syncverify.run import Run
from syncverify.scenario import Scenario
from syncverify.schedule import DEFAULT_SCHEDULE, Decision, Schedule
from syncverify.sim.decisions import Decisions, Following
from syncverify.sim.exploration import Exploration
from syncverify.sim.moves import order_matters
from syncverify.sim.pct import PriorityRuns
from syncverify.subject import Subject
from syncverify.violation import Violation

Identity = tuple[str, str]

# A run that ends in a fault on real processes, or in a hang anywhere, costs seconds.
_MAX_SLOW_RUNS = 3


class Backend(Protocol):
    """What a search needs of a backend."""

    @property
    def name(self) -> str:
        """Name used in reports."""

    def run(self, scenario: Scenario, subject: Subject) -> Run:
        """Play a scenario."""


@runtime_checkable
class ScheduledBackend(Protocol):
    """A backend on which timing is up to a schedule."""

    def run_scheduled(
        self, scenario: Scenario, subject: Subject, decisions: Decisions
    ) -> Run:
        """Play a scenario, and decide where timing decides."""


@dataclass(frozen=True, slots=True)
class Verdict:
    """What one run, or all runs of one scenario, came to.

    Attributes:
        violations: By identity.
        decisions: What timing decided in the run that shows them.
        num_moves: Moves of the run, all ranks together.
        branches: Whether another schedule could lead to something else.
        applied: Names of the properties that had something to judge.
    """

    violations: dict[Identity, Violation]
    decisions: tuple[Decision, ...] = ()
    num_moves: int = 0
    branches: bool = False
    applied: tuple[str, ...] = ()

    @property
    def schedule(self) -> Schedule:
        """Return the schedule that leads to it."""
        return Schedule.of(self.decisions)


class OutOfBudgetError(Exception):
    """No more runs may be made."""


@dataclass(slots=True)
class Judge:
    """Plays and judges, each scenario and schedule once.

    Attributes:
        subject: The synchronizer under test.
        backend: Where scenarios are played.
        choice: Which schedules are played.
        random_seed: Of random priorities.
        deadline: When to stop; None means never.
        runs_left: Runs that may still be made; None means any number.
        num_runs: Runs made.
        num_slow_runs: Those among them that took seconds, since it was last set to 0.
        known: What is known of the schedules of each scenario.
        num_overlaps_possible: Steps of ranks in which a reduction could overlap with
            backward.
        num_overlaps: Those of them in which one did.
        held: The most memory that `record_stream` held back in one run.
    """

    subject: Subject
    backend: Backend
    choice: ScheduleChoice
    random_seed: int
    deadline: float | None
    runs_left: int | None = None
    num_runs: int = 0
    num_slow_runs: int = 0
    known: dict[Scenario, Knowledge] = field(default_factory=dict)
    num_overlaps_possible: int = 0
    num_overlaps: int = 0
    held: HeldMemory = field(default_factory=HeldMemory)
    _verdicts: dict[tuple[Scenario, Schedule, bool], Verdict] = field(
        default_factory=dict
    )
    _explored: dict[Scenario, Verdict] = field(default_factory=dict)

    def verdict(
        self,
        scenario: Scenario,
        draw: Callable[[int], Schedule],
        *,
        twice: bool = False,
    ) -> Verdict:
        """Play a scenario with the schedules that were chosen, until one fails.

        Args:
            scenario: What to play.
            draw: Draws a schedule of that many decisions.
            twice: Play the default schedule twice, to see whether that is the same.

        Returns:
            The verdict on the first run that fails, or else on the default one.

        Raises:
            OutOfBudgetError: No run may be made for it any more.
        """
        first = self.followed(scenario, DEFAULT_SCHEDULE, twice=twice)
        if not isinstance(self.backend, ScheduledBackend):
            return first
        if not first.branches or first.violations:
            self.known[scenario] = Knowledge(FIRST if first.branches else SAME)
            return first
        if self.choice.mode == "default":
            self.known[scenario] = Knowledge(FIRST)
            return first
        if self.choice.mode == "drawn":
            self.known[scenario] = Knowledge(DRAWN)
            drawn = self.followed(scenario, draw(first.num_moves))
            return drawn if drawn.violations else first
        if scenario not in self._explored:
            runs = self._all(scenario, first.num_moves)
            failing = (verdict for verdict in runs if verdict.violations)
            self._explored[scenario] = next(failing, first)
        return self._explored[scenario]

    def followed(
        self, scenario: Scenario, schedule: Schedule, *, twice: bool = False
    ) -> Verdict:
        """Play a scenario with a schedule.

        Args:
            scenario: What to play.
            schedule: What timing decides.
            twice: Play it twice, to see whether that is the same; where timing is up to
                nobody, it need not be.

        Returns:
            The verdict.
        """
        twice = twice and isinstance(self.backend, ScheduledBackend)
        key = (scenario, schedule, twice)
        if key not in self._verdicts:
            again = None
            if twice:
                with disturbed_addresses():
                    again = self._run(scenario, _following(schedule))
            self._verdicts[key] = self._judged(scenario, _following(schedule), again)
        return self._verdicts[key]

    def simplified(
        self, scenario: Scenario, schedule: Schedule, identity: Identity
    ) -> Verdict:
        """Undo what is not needed in a schedule that leads to a violation.

        Args:
            scenario: What was played.
            schedule: With what.
            identity: What it came to.

        Returns:
            The verdict on a schedule that shows it, with no deviation from the default
            that could be left out by itself, as far as runs are left.
        """
        best = self.followed(scenario, schedule)
        place = len(best.schedule.choices)
        with contextlib.suppress(OutOfBudgetError):
            while place > 0:
                place -= 1
                choices = best.schedule.choices
                if place >= len(choices) or not choices[place]:
                    continue
                without = (*choices[:place], 0, *choices[place + 1 :])
                verdict = self.followed(scenario, Schedule(without))
                if identity in verdict.violations:
                    best, place = verdict, len(verdict.schedule.choices)
        return best

    def _all(self, scenario: Scenario, num_moves: int) -> Iterator[Verdict]:
        """Play one schedule of each class, or random ones where they are too many."""
        num_ranks, max_runs = scenario.mesh.num_ranks, self.choice.max_runs
        if self.choice.mode == "all":
            exploration = Exploration(num_ranks)
            for decisions in islice(exploration.runs(), max_runs):
                yield self._judged(scenario, decisions)
            if exploration.is_complete:
                counted = exploration.num_classes, exploration.num_interleavings
                self.known[scenario] = Knowledge(COMPLETE, *counted)
                return
        priorities = PriorityRuns(num_ranks, num_moves)
        for decisions in priorities.runs(max_runs, self.random_seed):
            yield self._judged(scenario, decisions)
        chance = priorities.probability(max_runs)
        self.known[scenario] = Knowledge(RANDOM, probability=chance)

    def _judged(
        self, scenario: Scenario, decisions: Decisions, again: Run | None = None
    ) -> Verdict:
        run = self._run(scenario, decisions)
        found = check(scenario, run, self.subject.capabilities, again=again)
        self.num_slow_runs += bool(found) and _is_slow(run)
        measured = overlap(scenario, run)
        self.num_overlaps_possible += measured.num_possible
        self.num_overlaps += measured.num_done
        held = held_memory([rank_run.events for rank_run in run.ranks])
        self.held = max(self.held, held, key=lambda held: held.extent)
        moves = decisions.moves
        return Verdict(
            {violation.identity: violation for violation in found},
            tuple(decisions.taken),
            len(moves),
            decisions.met_question or order_matters(moves, scenario.mesh.num_ranks),
            applied(scenario, run, self.subject.capabilities, again=again),
        )

    def _run(self, scenario: Scenario, decisions: Decisions) -> Run:
        if (
            self.runs_left == 0
            or self.num_slow_runs >= _MAX_SLOW_RUNS
            or (self.deadline is not None and time.monotonic() > self.deadline)
        ):
            raise OutOfBudgetError
        if isinstance(self.backend, ScheduledBackend):
            run = self.backend.run_scheduled(scenario, self.subject, decisions)
        else:
            run = self.backend.run(scenario, self.subject)
        self.num_runs += 1
        if self.runs_left is not None:
            self.runs_left -= 1
        return run


def _following(schedule: Schedule) -> Decisions:
    return Decisions(Following(schedule))


def _is_slow(run: Run) -> bool:
    return run.fault is not None and (
        run.backend != "sim" or run.fault.kind == "never_returns"
    )
