"""Strategies for how backward is run."""

from __future__ import annotations

import functools
from collections.abc import Collection

from hypothesis import strategies as st

from syncverify.features import BEYOND, NEVER_TOGETHER
from syncverify.subject import DEFAULT_CAPABILITIES, Capabilities
from syncverify.vocabulary import PLAIN, RARE

_NOT_PLAIN_ONE_IN = 2


@functools.lru_cache
def backwards(
    *,
    beside: frozenset[str] = frozenset(),
    capabilities: Capabilities = DEFAULT_CAPABILITIES,
) -> st.SearchStrategy[str]:
    """Generate how backward is run: every other time by a plain `backward()`.

    Shrinks toward that.

    Args:
        beside: Features that the scenario has already, as `topic=value`.
        capabilities: What the subject promises.

    Returns:
        A strategy for words of `BACKWARDS`, without those of `RARE`.
    """
    words = drawable("backward", beside=beside, capabilities=capabilities)
    if not words:
        return st.just(PLAIN)
    return st.sampled_from([PLAIN] * len(words) * (_NOT_PLAIN_ONE_IN - 1) + words)


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
