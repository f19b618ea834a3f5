"""Strategies for the streams on which a training program works."""

from __future__ import annotations

from hypothesis import strategies as st

from strategies.words import words
from syncverify.subject import DEFAULT_CAPABILITIES, Capabilities


def launches(
    *, capabilities: Capabilities = DEFAULT_CAPABILITIES
) -> st.SearchStrategy[str]:
    """Generate on which streams the caller works.

    Shrinks toward the stream that is current.

    Args:
        capabilities: What the subject promises.

    Returns:
        A strategy for words of `LAUNCHES`.
    """
    return words("launch", "current_stream", capabilities=capabilities)
