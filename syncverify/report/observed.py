"""The observed features of a report: one word for each feature beyond the contract."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from syncverify.search.observation import Word

# Words for which a report keeps the simplest scenario and its diagnosis.
EXPLAINED: tuple[Word, ...] = ("wrong", "hangs", "unclear")


@dataclass(frozen=True, slots=True)
class ObservedFeature:
    """One feature beyond the contract.

    Attributes:
        feature: The feature, as `topic=value`.
        word: The worst word of a scenario.
        counts: Number of scenarios by word.
        reason: Why the feature was not tried; "" if it was.
        summary: One sentence about the simplest scenario that is neither right nor refused.
        token: Token of that scenario, or "".
        diagnosis: The whole violation as text, or "".
    """

    feature: str
    word: Word
    counts: dict[Word, int] = field(default_factory=dict)
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
            "word": self.word,
            "scenarios": {**self.counts},
        }
        for key in ("reason", "summary", "token", "diagnosis"):
            if getattr(self, key):
                data[key] = getattr(self, key)
        return data


def with_word(observed: Sequence[ObservedFeature], word: Word) -> list[ObservedFeature]:
    """List the features with a word, in the order of the report."""
    return [each for each in observed if each.word == word]
