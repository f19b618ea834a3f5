"""A contract in words, for a line of a report."""

from __future__ import annotations

from syncverify.scenario.contract import Capabilities
from syncverify.scenario.feature_table import OPTIONAL_FEATURES


def in_words(capabilities: Capabilities) -> str:
    """Name a contract by the number of its features; "" if it asks for all of them."""
    asked = sum(
        capabilities.covers(topic, value)
        for topic, values in OPTIONAL_FEATURES.items()
        for value in values
    )
    if not asked:
        return "the plain contract"
    count = sum(map(len, OPTIONAL_FEATURES.values()))
    words = f"the plain contract and {asked} of {count} features beyond it"
    return "" if asked == count else words
