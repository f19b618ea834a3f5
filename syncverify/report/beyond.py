"""Features beyond the contract: observe them, in the form of the report."""

from __future__ import annotations

from collections.abc import Callable, Collection
from dataclasses import dataclass, replace

from syncverify.report.observed import ObservedFeature
from syncverify.report.report import Report
from syncverify.report.text import violation_text
from syncverify.search.judge import Backend, Identity
from syncverify.search.observation import (
    INTERRUPTED,
    ObservationPlan,
    RatedFeature,
    Rating,
    features_beyond,
    observe,
)
from syncverify.settings import OBSERVED_SCENARIOS, OBSERVED_SIMPLER
from syncverify.subjects.subject import Subject

# Receives a feature, its number from 1, the number of all features, and the rating of the
# feature: None before it is played.
Tell = Callable[[str, int, int, Rating | None], None]


def _tell_nothing(feature: str, number: int, total: int, rating: Rating | None) -> None:
    """Show no progress."""


@dataclass(frozen=True, slots=True)
class Observing:
    """How much of each feature beyond the contract is observed.

    Attributes:
        num_scenarios: Number of scenarios of a feature.
        num_simpler: Number of runs in which the worst scenario may become simpler.
        tell: Receives each feature before it is played, and again with its rating.
    """

    num_scenarios: int = OBSERVED_SCENARIOS
    num_simpler: int = OBSERVED_SIMPLER
    tell: Tell = _tell_nothing

    def plan(
        self, max_ranks: int, random_seed: int, deadline: float | None
    ) -> ObservationPlan:
        """Return the plan of the observation in one run."""
        return ObservationPlan(
            max_ranks=max_ranks,
            num_scenarios=self.num_scenarios,
            num_simpler=self.num_simpler,
            random_seed=random_seed,
            deadline=deadline,
        )


class ObservationInterrupted(KeyboardInterrupt):  # as its base
    """An interrupt while features were observed.

    Attributes:
        report: The report of all that was judged until then.
    """

    def __init__(self, report: Report) -> None:
        super().__init__()
        self.report = replace(report, is_interrupted=True)


def with_features(
    report: Report,
    subject: Subject,
    backend: Backend,
    plan: ObservationPlan,
    known: Collection[Identity],
    tell: Tell,
) -> Report:
    """Observe the features beyond the contract of a subject.

    Args:
        report: The report of the search.
        subject: The synchronizer.
        backend: Backend that plays the scenarios.
        plan: Size and seed of the observation.
        known: Identities of violations of plain training steps.
        tell: Receives each feature before it is played, and again with its rating.

    Returns:
        The report, with one entry for each feature that the contract does not promise.

    Raises:
        ObservationInterrupted: An interrupt; features that it met are not tried.
    """
    features = features_beyond(subject.capabilities)
    observed = list[ObservedFeature]()
    observations = observe(subject, backend, plan, features, known)
    try:
        for number, feature in enumerate(features, start=1):
            tell(feature, number, len(features), None)
            observation = next(observations)
            observed.append(_observed_feature(observation, subject, backend.name))
            tell(feature, number, len(features), observation.rating)
    except KeyboardInterrupt:
        observed += (
            ObservedFeature(feature, "not tried", reason=INTERRUPTED)
            for feature in features[len(observed) :]
        )
        raise ObservationInterrupted(replace(report, beyond=tuple(observed))) from None
    return replace(report, beyond=tuple(observed))


def _observed_feature(
    observation: RatedFeature, subject: Subject, backend: str
) -> ObservedFeature:
    found = observation.found
    texts = {}
    if found is not None:
        diagnosis = violation_text(
            found,
            subject=subject.name,
            backend=backend,
            contract=subject.contract_choice,
        )
        texts = {
            "summary": found.violation.summary,
            "token": found.token,
            "diagnosis": diagnosis,
        }
    return ObservedFeature(
        observation.feature,
        observation.rating,
        dict(observation.counts),
        observation.reason,
        **texts,
    )
