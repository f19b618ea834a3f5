"""A contract in words, for a line of a report."""

from __future__ import annotations

from syncverify.scenario.contract import Capabilities
from syncverify.scenario.feature_table import OPTIONAL_FEATURES


def in_words(capabilities: Capabilities) -> str:
    """Name a contract by what it reduces and the number of its features; "" for everything."""
    plain = f"the plain contract{_kind(capabilities)}"
    asked = sum(
        capabilities.covers(topic, value)
        for topic, values in OPTIONAL_FEATURES.items()
        for value in values
    )
    if not asked:
        return plain
    count = sum(map(len, OPTIONAL_FEATURES.values()))
    words = f"{plain} and {asked} of {count} features beyond it"
    return "" if asked == count else words


def _kind(capabilities: Capabilities) -> str:
    """Say in what a contract differs from sums of DTensors."""
    is_mean, is_local = (
        capabilities.reduction == "mean",
        capabilities.tensors == "local",
    )
    if not (is_mean or is_local):
        return ""
    means = "means" if is_mean else "sums"
    return f" for {means} of {'ordinary tensors' if is_local else 'DTensors'}"
