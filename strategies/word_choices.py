"""Choices among the words of a topic that a scenario may have."""

from __future__ import annotations

import functools
from collections.abc import Collection

from hypothesis import strategies as st

from syncverify.scenario.contract import Capabilities
from syncverify.scenario.feature_row import Feature, base_word
from syncverify.scenario.feature_table import FEATURES, NEVER_WITH, TABLE


@functools.lru_cache
def word_choices(
    topic: str,
    *,
    beside: frozenset[str] = frozenset(),
    capabilities: Capabilities,
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


def allowed_words(
    topic: str, *, capabilities: Capabilities, beside: Collection[str] = ()
) -> list[str]:
    """Return the words of a topic that a scenario with the features of `beside` may have.

    The contract covers each word. None is rare, none forms a pair of `NEVER_TOGETHER` with a
    feature of `beside`, and none is the plain word. Variants of these words follow.
    """
    found = frozenset(map(Feature.of, beside))
    words = [
        feature.value
        for feature, row in FEATURES.items()
        if feature.topic == topic and capabilities.covers(*feature) and not row.rare
        if found.isdisjoint(NEVER_WITH.get(feature, ()))
    ]
    version = capabilities.table_version
    known = [row.value for row in TABLE[topic].rows if row.since <= version]
    return words + [
        word for word in known if word not in words and base_word(word) in words
    ]
