"""The contract that a subject keeps, as far as its features were observed."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

from syncverify.report.observed import EXPLAINED, ObservedFeature, with_rating
from syncverify.scenario.contract import Capabilities
from syncverify.scenario.feature_row import Feature
from syncverify.scenario.features import optional_features
from syncverify.search.found_violation import FoundViolation
from syncverify.search.observation import Rating, rating_of


@dataclass(frozen=True, slots=True)
class FoundContract:
    """A contract made of observations.

    Attributes:
        capabilities: The contract: features that were right, and features that were refused.
        observed: The observations.
    """

    capabilities: Capabilities
    observed: Sequence[ObservedFeature]

    def comments(self, subject: str, seed: int) -> dict[str, str]:
        """Return the comments of the contract file, by field."""
        num_scenarios = sum(each.num_scenarios for each in self.observed)
        lines = [
            f"The contract that {subject} keeps: found by `syncverify probe {subject}` in",
            f"{num_scenarios} scenarios, seed {seed}. From now on it is a regression test:",
            f"    syncverify run {subject} --contract THIS_FILE",
        ]
        lines += (
            f"{rating}: {each.feature}"
            for rating in (*EXPLAINED, "not tried")
            for each in with_rating(self.observed, rating)
        )
        return {
            "": "\n".join(lines),
            "table_version": "Version of the feature table whose values are meant.",
            "right": "The gradient is right.",
            "refused": "The gradient is right, or a clear error says why not.",
        }


def found_contract(
    plain: Capabilities, observed: Sequence[ObservedFeature]
) -> FoundContract:
    """Return the contract of the features that were right or refused."""
    by_rating = {
        rating: frozenset(each.feature for each in with_rating(observed, rating))
        for rating in ("right", "refused")
    }
    return FoundContract(
        replace(plain, right=by_rating["right"], refused=by_rating["refused"]), observed
    )


def corrected(
    observed: Sequence[ObservedFeature], found: FoundViolation, diagnosis: str
) -> list[ObservedFeature]:
    """Give the features of a scenario that violates the found contract a worse rating.

    A feature that was right in each scenario and raises in another one is refused, until its
    error turns out to be unclear. Each summary names the other features of the scenario.

    Args:
        observed: The observations behind the contract.
        found: The violation.
        diagnosis: The violation as text.

    Returns:
        The observations, with changed ratings for the features of the scenario.
    """
    blamed = set(map(str, optional_features(found.scenario)))
    return [
        _corrected(each, found, diagnosis, sorted(blamed - {each.feature}))
        if each.feature in blamed
        else each
        for each in observed
    ]


def _corrected(
    observed: ObservedFeature,
    found: FoundViolation,
    diagnosis: str,
    others: Sequence[str],
) -> ObservedFeature:
    together = f" (together with {', '.join(others)})" if others else ""
    rating = rating_of(found.violation.identity)
    if rating == "unclear" and observed.rating == "right":
        rating = "refused"
    counts = {**observed.counts, rating: observed.counts.get(rating, 0) + 1}
    return replace(
        observed,
        rating=rating,
        counts=counts,
        summary=found.violation.summary + together,
        token=found.token,
        diagnosis=diagnosis,
    )


def compared(own: Capabilities, observed: Sequence[ObservedFeature]) -> Iterator[str]:
    """Yield a line for each feature whose rating differs from the promise of a contract.

    A contract of plain steps alone is compared with nothing.
    """
    if own.asks_plain_steps_alone:
        return
    for each in observed:
        promise = _promise(own, each.feature)
        if not _agree(promise, each.rating):
            yield f"differs: {each.feature} is {each.rating}, and the contract says {promise}"


def _promise(own: Capabilities, feature: str) -> str:
    topic, value = Feature.of(feature)
    if not own.covers(topic, value):
        return "not asked"
    return "refused" if own.may_refuse(topic, value) else "right"


def _agree(promise: str, rating: Rating) -> bool:
    if rating == "not tried":
        return True
    if promise == "not asked":
        return rating not in {"right", "refused"}
    return rating == "right" or (promise == "refused" and rating == "refused")
