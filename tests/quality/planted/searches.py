"""Searches for the planted defects that have fixed scenarios."""

from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Any

from hypothesis import Phase

from syncverify.backends.sim import SimBackend
from syncverify.scenario.scenario import Scenario
from syncverify.search.drawing import Drawing, EndedError
from syncverify.search.found_violation import FoundViolation
from syncverify.search.judge import Draw, Judge
from syncverify.search.result import SilentProgress
from syncverify.search.schedules import ScheduleChoice
from syncverify.search.shrinking import shrink
from syncverify.subjects.subject import resolve
from tests.quality.planted import semantics, timing
from tests.quality.planted.bank import EXCLUSIVE, MATCH, READ, VALUE
from tests.quality.planted.divergence_bank import DIVERGENCES
from tests.quality.planted.graph_bank import GRAPH_DEFECTS
from tests.quality.planted.lifecycle_bank import LIFECYCLE_DEFECTS
from tests.quality.planted.modules import MODULE_DEFECTS
from tests.quality.planted.planted import Planted
from tests.quality.planted.space import SPACE
from tests.quality.planted.stream_bank import STREAM_DEFECTS

DETERMINISTIC = "subject_is_deterministic"
# Violations that searches look for here, where the test of the word looks for another one.
MET_AS = {
    "LearnsFromFirstMicroBatch used=not_in_first_micro_batch": (
        EXCLUSIVE,
        "touched_in_flight",
    )
}


@dataclass(frozen=True)
class Search:
    """A search for one defect.

    Attributes:
        name: Names of the subject and of the feature that shows the defect.
        subject: The synchronizer with the defect.
        features: Features that scenarios may have, beyond the plain case; None takes the
            features of the subject's own capabilities.
        identity: Property and cause of the violation.
        examples: Scenarios within which the violation is met.
        ranks: Largest world to try.
    """

    name: str
    subject: type[Any]
    features: frozenset[str] | None
    identity: tuple[str, str]
    examples: int = 100
    ranks: int = 4

    def smallest(self, seed: int) -> FoundViolation | None:
        """Search for the violation, and return it after shrinking."""
        subject = resolve(self.narrowed())
        judge = Judge(subject, SimBackend(), ScheduleChoice(), seed)
        drawing = Drawing(subject.capabilities, self.ranks, self.examples, seed)
        first = self.first(drawing, judge)
        if first is None:
            return None
        return shrink(drawing, judge, self.identity, first, SilentProgress())

    def first(self, drawing: Drawing, judge: Judge) -> FoundViolation | None:
        """Return the first violation of the identity, and pass over other violations."""
        met: list[FoundViolation] = []
        twice = self.identity[0] == DETERMINISTIC

        def look(scenario: Scenario, draw: Draw) -> None:
            judged = judge.judge_scenario(scenario, draw, twice=twice)
            if self.identity in judged.violations:
                met.append(judged.violations[self.identity])
                raise EndedError

        drawing.for_each(look, Phase.generate)
        return met[0] if met else None

    def narrowed(self) -> type[Any]:
        """Return the subject as one that promises these features, and covers no other."""
        if self.features is None:
            return self.subject
        own = resolve(self.subject).capabilities
        capabilities = replace(
            own, features=frozenset(), right=self.features, outside=frozenset()
        )
        return type(self.name, (self.subject,), {"capabilities": capabilities})


def of_features(defects: list[Planted]) -> Iterator[Search]:
    for defect in defects:
        features = defect.needs | {defect.feature}
        name = f"{defect.subject.__name__} {defect.feature}"
        identity = MET_AS.get(name, defect.identity)
        yield Search(name, defect.subject, features, identity)


def of_graphs() -> Iterator[Search]:
    for defect in GRAPH_DEFECTS:
        for feature in sorted(defect.drawn):
            name = f"{defect.subject.__name__} {feature}"
            yield Search(name, defect.subject, frozenset({feature}), defect.identity)


def of_streams() -> Iterator[Search]:
    for defect in STREAM_DEFECTS:
        identity = (defect.property, defect.cause)
        yield Search(defect.subject.__name__, defect.subject, None, identity)


def of_time_and_ranks() -> Iterator[Search]:
    for subject, identity in (
        (timing.FallsThrough, (VALUE, "rank_contribution_missing")),
        (timing.FirstComeIsRankZero, (MATCH, "collective_mismatch")),
        (timing.IgnoresNotYet, (READ, "read_before_reduced")),
        (timing.ReducesInRandomOrder, (DETERMINISTIC, "acts_otherwise")),
        (timing.ReducesInOrderOfAddresses, (DETERMINISTIC, "acts_otherwise")),
        (semantics.RefillsAfterALaterWait, (EXCLUSIVE, "touched_in_flight")),
        (semantics.TakesReturnForDone, (READ, "read_before_reduced")),
        *((each.subject, each.with_data) for each in DIVERGENCES),
    ):
        yield Search(subject.__name__, subject, None, identity)


SEARCHES = [
    *of_streams(),
    *of_time_and_ranks(),
    *of_features(SPACE),
    *of_features(LIFECYCLE_DEFECTS),
    *of_features(MODULE_DEFECTS),
    *of_graphs(),
]
