"""The observed features of a report: one rating for each feature beyond the contract."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from syncverify.search.observation import Rating

# Ratings for which a report keeps the simplest scenario and its diagnosis.
EXPLAINED: tuple[Rating, ...] = ("wrong", "hangs", "unclear")


@dataclass(frozen=True, slots=True)
class ObservedFeature:
    """One feature beyond the contract.

    Attributes:
        summary: One sentence about the simplest scenario that is neither right nor refused.
        token: Token of that scenario, or "".
        diagnosis: The whole violation as text, or "".
    """

    feature: str
    rating: Rating
    counts: dict[Rating, int] = field(default_factory=dict)
    reason: str = ""
    summary: str = ""
    token: str = ""
    diagnosis: str = ""

    @property
    def num_scenarios(self) -> int:
        """Return the number of scenarios that were judged."""
        return sum(self.counts.values())

    def to_json(self) -> dict[str, Any]:
        """Return plain JSON values, without the empty ones."""
        data: dict[str, Any] = {
            "feature": self.feature,
            "word": self.rating,
            "scenarios": {**self.counts},
        }
        for key in ("reason", "summary", "token", "diagnosis"):
            if getattr(self, key):
                data[key] = getattr(self, key)
        return data


def with_rating(
    observed: Sequence[ObservedFeature], rating: Rating
) -> list[ObservedFeature]:
    """List the features with a rating, in the order of the report."""
    return [each for each in observed if each.rating == rating]
