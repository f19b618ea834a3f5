"""Features beyond the contract: observe them, in the form of the report."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator

from syncverify.report.observed import ObservedFeature
from syncverify.report.text import violation_text
from syncverify.search.judge import Backend, Identity
from syncverify.search.observation import (
    Observation,
    ObservationPlan,
    features_beyond,
    observe,
)
from syncverify.subjects.subject import Subject

# Receives a feature, its number from 1, and the number of all features.
Tell = Callable[[str, int, int], None]


def observed_features(
    subject: Subject,
    backend: Backend,
    plan: ObservationPlan,
    known: Collection[Identity],
    tell: Tell,
) -> Iterator[ObservedFeature]:
    """Observe the features beyond the contract of a subject.

    Args:
        subject: The synchronizer.
        backend: Backend that plays the scenarios.
        plan: Size and seed of the observation.
        known: Identities of violations of plain training steps.
        tell: Receives each feature, its number from 1, and their number in all.

    Yields:
        One entry for each feature that the contract does not ask for.
    """
    features = features_beyond(subject.capabilities)
    observations = observe(subject, backend, plan, features, known)
    for number, each in enumerate(observations, start=1):
        tell(each.feature, number, len(features))
        yield _observed_feature(each, subject, backend.name)


def _observed_feature(
    observation: Observation, subject: Subject, backend: str
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
        observation.word,
        dict(observation.counts),
        observation.reason,
        **texts,
    )
