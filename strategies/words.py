"""Strategies for the words of a vocabulary that a subject's contract covers."""

from __future__ import annotations

import functools
from collections.abc import Collection, Iterable

from hypothesis import strategies as st

from syncverify.features import BEYOND, NEVER_TOGETHER
from syncverify.subject import Capabilities
from syncverify.vocabulary import RARE

# Of every so many words one is not the plain one.
_ONE_IN = 4


@functools.lru_cache
def words(
    topic: str,
    plain: str,
    *,
    beside: frozenset[str] = frozenset(),
    capabilities: Capabilities,
) -> st.SearchStrategy[str]:
    """Generate words of a topic, three of four times the plain one.

    Shrinks toward the plain one.

    Args:
        topic: Of `features.BEYOND`.
        plain: What happens in a plain training step.
        beside: Features that the scenario has already, as `topic=value`.
        capabilities: What the subject promises.

    Returns:
        A strategy for words.
    """
    return _weighted(plain, drawable(topic, beside=beside, capabilities=capabilities))


def _weighted(plain: str, others: Iterable[str]) -> st.SearchStrategy[str]:
    listed = list(others)
    if not listed:
        return st.just(plain)
    return st.sampled_from([*[plain] * (_ONE_IN - 1) * len(listed), *listed])


def drawable(
    topic: str, *, beside: Collection[str], capabilities: Capabilities
) -> list[str]:
    """List the words of a topic that a scenario may have.

    Args:
        topic: Of `BEYOND`.
        beside: Features that the scenario has already, as `topic=value`.
        capabilities: What the subject promises.

    Returns:
        The words, without the plain one and without those of `RARE`.
    """
    return [
        word
        for word in BEYOND[topic]
        if word not in RARE
        and capabilities.covers(topic, word)
        and not any(
            frozenset({f"{topic}={word}", other}) in NEVER_TOGETHER for other in beside
        )
    ]
