"""Contracts of plain synchronizers: the features beyond plain training steps."""

from __future__ import annotations

from syncverify.scenario.features import ALL_OPTIONAL_TOPICS, OPTIONAL_FEATURES


def only(*features: str) -> frozenset[str]:
    """Return the features outside of a contract that covers these features alone."""
    topics = {feature.partition("=")[0] for feature in features}
    others = {
        f"{topic}={value}" for topic in topics for value in OPTIONAL_FEATURES[topic]
    }
    return (ALL_OPTIONAL_TOPICS - topics) | (others - set(features))
