"""Strategies for how backward is run."""

from __future__ import annotations

import functools

from hypothesis import strategies as st

from strategies.words import drawable
from syncverify.subject import DEFAULT_CAPABILITIES, Capabilities
from syncverify.vocabulary import PLAIN

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
