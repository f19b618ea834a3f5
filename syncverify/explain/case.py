"""A violation with its plays: again, and of drawn scenarios to compare with."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Final

from syncverify.judge.consequences import consequences_of
from syncverify.judge.properties import check
from syncverify.judge.violation import Identity, Violation
from syncverify.playing.sim import SimBackend
from syncverify.scenario.contract import Capabilities
from syncverify.scenario.scenario import Scenario
from syncverify.search.drawing import Drawing
from syncverify.search.found_violation import FoundViolation
from syncverify.sim.recording.rank_recorder import RankRecorder
from syncverify.subjects.subject import Subject
from syncverify.trace.run import Run

# Causes of runs that take seconds, which are played rarely or never again: a time limit or the
# death of a process ends the first ones, the bound on turns the others.
ENDED_FROM_OUTSIDE: Final = frozenset({"never_returns", "process_died"})
SLOW: Final = ENDED_FROM_OUTSIDE | {"step_bound"}
MAX_RANKS: Final = 4
_NUM_DRAWN: Final = 6
_SEED: Final = 0


def drawn_scenarios(capabilities: Capabilities) -> list[Scenario]:
    """Return a few small scenarios within a contract, always the same."""
    return Drawing(capabilities, MAX_RANKS, _NUM_DRAWN, _SEED).drawn()


@dataclass
class Case:
    """A violation of a subject, which is played again."""

    found: FoundViolation
    subject: Subject
    backend: SimBackend

    def play(self, recorders: Sequence[RankRecorder] | None = None) -> Run:
        """Play the scenario of the violation, as it was played when it was found."""
        found = self.found
        return self.backend.run(found.scenario, self.subject, found.schedule, recorders)

    def identities_of(self, scenario: Scenario, run: Run) -> set[Identity]:
        """Return the violations of a run."""
        found = check(scenario, run, self.subject.capabilities)
        return {violation.identity for violation in found}

    def right_scenarios(self) -> Iterator[tuple[Scenario, Run]]:
        """Yield the drawn scenarios that hold every property, each with its run."""
        for scenario in drawn_scenarios(self.subject.capabilities):
            run = self.backend.run(scenario, self.subject)
            if run.fault is None and not self.identities_of(scenario, run):
                yield scenario, run


def is_mended(
    violation: Violation, after: set[Identity] | None, before: set[Identity] | None
) -> bool:
    """Tell whether a violation is gone and none is new, of the violations of two plays."""
    # A violation of another property may stay: the subject may have another defect. But the
    # property that is mended has to hold, and those that its violation may violate: a change after
    # which nothing is reduced has no wrong collective either.
    mended = {violation.property, *consequences_of(violation.property)}
    if after is None:  # the change cannot be made
        return False
    return after <= (before or set()) and not mended & dict(after).keys()
