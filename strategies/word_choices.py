"""Choices among the words of a vocabulary topic that a scenario may have."""

from __future__ import annotations

import functools
from collections.abc import Collection

from hypothesis import strategies as st

from syncverify.scenario.contract import Capabilities
from syncverify.scenario.feature_table import OPTIONAL_FEATURES
from syncverify.scenario.features import NEVER_TOGETHER
from syncverify.scenario.space import values_in_contract
from syncverify.scenario.vocabulary import VARIANTS, base_word

_NUM_PLAIN_PER_WORD = 3


@functools.lru_cache
def word_choices(
    topic: str,
    plain: str,
    *,
    beside: frozenset[str] = frozenset(),
    capabilities: Capabilities,
) -> st.SearchStrategy[str]:
    """Return a strategy for words of a topic, the plain word three times out of four.

    Shrinks toward the plain word. The scenario already has the features of `beside`, as
    `topic=value`.
    """
    words = allowed_words(topic, beside=beside, capabilities=capabilities)
    if not words:
        return st.just(plain)
    return st.sampled_from([plain] * _NUM_PLAIN_PER_WORD * len(words) + words)


def allowed_words(
    topic: str, *, beside: Collection[str], capabilities: Capabilities
) -> list[str]:
    """Return the words of a topic that a scenario with the features of `beside` may have.

    The contract covers each word. None is in `vocabulary.RARE`, none forms a pair of
    `NEVER_TOGETHER` with a feature of `beside`, and none is the plain word. Variants of these
    words follow.
    """
    words = [
        word
        for word in values_in_contract(topic, OPTIONAL_FEATURES[topic], capabilities)
        if not any(
            frozenset({f"{topic}={word}", other}) in NEVER_TOGETHER for other in beside
        )
    ]
    variants = VARIANTS.get(topic, {})
    return words + [variant for variant in variants if base_word(variant) in words]
