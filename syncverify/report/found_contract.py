"""The contract that a subject keeps, as far as its features were observed."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

from syncverify.report.observed import EXPLAINED, ObservedFeature, with_word
from syncverify.scenario.contract import Capabilities
from syncverify.scenario.features import optional_features
from syncverify.search.found_violation import FoundViolation
from syncverify.search.observation import Word, word_of


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
            f"{word}: {each.feature}"
            for word in (*EXPLAINED, "not tried")
            for each in with_word(self.observed, word)
        )
        return {
            "": "\n".join(lines),
            "right": "The gradient is right.",
            "refused": "The gradient is right, or a clear error says why not.",
        }


def found_contract(
    plain: Capabilities, observed: Sequence[ObservedFeature]
) -> FoundContract:
    """Return the contract of the features that were right or refused."""
    by_word = {
        word: frozenset(each.feature for each in with_word(observed, word))
        for word in ("right", "refused")
    }
    return FoundContract(
        replace(plain, right=by_word["right"], refused=by_word["refused"]), observed
    )


def corrected(
    observed: Sequence[ObservedFeature], found: FoundViolation, diagnosis: str
) -> list[ObservedFeature]:
    """Give the features of a scenario that violates the found contract a worse word.

    A feature that was right in each scenario and raises in another one is refused, until its
    error turns out to be unclear. Each summary names the other features of the scenario.

    Args:
        observed: The observations behind the contract.
        found: The violation.
        diagnosis: The violation as text.

    Returns:
        The observations, with other words for the features of the scenario.
    """
    blamed = set(map("=".join, optional_features(found.scenario)))
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
    word = word_of(found.violation.identity)
    if word == "unclear" and observed.word == "right":
        word = "refused"
    counts = {**observed.counts, word: observed.counts.get(word, 0) + 1}
    return replace(
        observed,
        word=word,
        counts=counts,
        summary=found.violation.summary + together,
        token=found.token,
        diagnosis=diagnosis,
    )


def compared(own: Capabilities, observed: Sequence[ObservedFeature]) -> Iterator[str]:
    """Yield a line for each feature that is otherwise than a contract says.

    A contract that asks for plain steps alone is compared with nothing.
    """
    if own.asks_plain_steps_alone:
        return
    for each in observed:
        said = _said(own, each.feature)
        if not _agree(said, each.word):
            yield f"differs: {each.feature} is {each.word}, and the contract says {said}"


def _said(own: Capabilities, feature: str) -> str:
    topic, _, value = feature.partition("=")
    if not own.covers(topic, value):
        return "not asked"
    return "refused" if own.may_refuse(topic, value) else "right"


def _agree(said: str, word: Word) -> bool:
    if word == "not tried":
        return True
    if said == "not asked":
        return word not in {"right", "refused"}
    return word == "right" or (said == "refused" and word == "refused")
