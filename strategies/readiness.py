"""Strategies for the order in which gradients become ready."""

from __future__ import annotations

from hypothesis import strategies as st

from strategies.words import words
from syncverify.subject import DEFAULT_CAPABILITIES, Capabilities


def readiness_orders(
    *, capabilities: Capabilities = DEFAULT_CAPABILITIES
) -> st.SearchStrategy[str]:
    """Generate whether ranks agree on the order in which gradients become ready.

    Shrinks toward one order on all ranks.

    Args:
        capabilities: What the subject promises.

    Returns:
        A strategy for words of `READINESS`.
    """
    return words("readiness", "same", capabilities=capabilities)
