"""Choices among the words of a topic that a scenario may have."""

from __future__ import annotations

import functools

from hypothesis import strategies as st

from syncverify.scenario.contract import EVERYTHING, Capabilities
from syncverify.scenario.feature_table import TABLE
from syncverify.scenario.words import allowed_words


@functools.lru_cache
def word_choices(
    topic: str,
    *,
    beside: frozenset[str] = frozenset(),
    capabilities: Capabilities = EVERYTHING,
) -> st.SearchStrategy[str]:
    """Return a strategy for words of a topic, one in `Topic.one_in` of them beyond the plain one.

    Shrinks toward the plain word. The scenario already has the features of `beside`, as
    `topic=value`.
    """
    plain = TABLE[topic].plain_word
    words = allowed_words(topic, beside=beside, capabilities=capabilities)
    if not words:
        return st.just(plain)
    return st.sampled_from([plain] * (TABLE[topic].one_in - 1) * len(words) + words)
