"""Strategies for the words of a vocabulary that a subject's contract covers."""

from __future__ import annotations

import functools
from collections.abc import Iterable

from hypothesis import strategies as st

from syncverify.features import BEYOND
from syncverify.subject import Capabilities

# Of every so many words one is not the plain one.
_ONE_IN = 4


@functools.lru_cache
def words(
    topic: str, plain: str, *, capabilities: Capabilities
) -> st.SearchStrategy[str]:
    """Generate words of a topic, three of four times the plain one.

    Shrinks toward the plain one.

    Args:
        topic: Of `features.BEYOND`.
        plain: What happens in a plain training step.
        capabilities: What the subject promises.

    Returns:
        A strategy for words.
    """
    covered = [word for word in BEYOND[topic] if capabilities.covers(topic, word)]
    return _weighted(plain, covered)


def _weighted(plain: str, others: Iterable[str]) -> st.SearchStrategy[str]:
    listed = list(others)
    if not listed:
        return st.just(plain)
    return st.sampled_from([*[plain] * (_ONE_IN - 1) * len(listed), *listed])
