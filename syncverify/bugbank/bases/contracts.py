"""What a plain synchronizer covers beyond plain training steps."""

from __future__ import annotations

from syncverify.features import ALL_BEYOND, BEYOND


def only(*features: str) -> frozenset[str]:
    """Return what is outside of a contract that covers these features alone."""
    topics = {feature.partition("=")[0] for feature in features}
    others = {f"{topic}={value}" for topic in topics for value in BEYOND[topic]}
    return (ALL_BEYOND - topics) | (others - set(features))
