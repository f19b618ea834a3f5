"""A violation with its plays: again, and of drawn scenarios to compare with."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Final

from syncverify.judge.consequences import consequences_of
from syncverify.judge.properties import check
from syncverify.judge.violation import Identity
from syncverify.playing.sim import SimBackend
from syncverify.scenario.scenario import Scenario
from syncverify.search.drawing import Drawing
from syncverify.search.found_violation import FoundViolation
from syncverify.sim.recording.rank_recorder import RankRecorder
from syncverify.subjects.subject import Subject
from syncverify.trace.run import ENDED_FROM_OUTSIDE, Run

# Causes of runs that take seconds, which are played rarely or never again: a time limit or the
# death of a process ends the first ones, the bound on turns the others.
SLOW: Final = ENDED_FROM_OUTSIDE | {"step_bound"}
MAX_RANKS: Final = 4
_NUM_DRAWN: Final = 6
_SEED: Final = 0


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

    def recorders(self, **how: bool) -> list[RankRecorder]:
        """Return a recorder for each rank of the scenario."""
        return [RankRecorder(**how) for _ in range(self.found.scenario.mesh.num_ranks)]

    def identities_of(self, scenario: Scenario, run: Run) -> set[Identity]:
        """Return the violations of a run."""
        found = check(scenario, run, self.subject.capabilities)
        return {violation.identity for violation in found}

    def is_mended(
        self, after: set[Identity] | None, before: set[Identity] | None
    ) -> bool:
        """Tell whether the violation is gone and none is new, of the violations of two plays."""
        # A violation of another property may stay: the subject may have another defect. But the
        # property that is mended has to hold, and those that its violation may violate: a change after
        # which nothing is reduced has no wrong collective either.
        broken = self.found.violation.property
        mended = {broken, *consequences_of(broken)}
        if after is None:  # the change cannot be made
            return False
        return after <= (before or set()) and not mended & dict(after).keys()

    def drawn(self, count: int = _NUM_DRAWN, seed: int = _SEED) -> list[Scenario]:
        """Return small scenarios within the contract, always the same."""
        return Drawing(self.subject.capabilities, MAX_RANKS, count, seed).drawn()

    def right_scenarios(self) -> Iterator[tuple[Scenario, Run]]:
        """Yield the drawn scenarios that hold every property, each with its run."""
        for scenario in self.drawn():
            run = self.backend.run(scenario, self.subject)
            if run.fault is None and not self.identities_of(scenario, run):
                yield scenario, run
