"""Focus: one topic of the scenario space whose special values most scenarios shall have."""

from __future__ import annotations

import difflib
from collections.abc import Mapping
from typing import Final

from syncverify.errors import UsageError
from syncverify.plain_text import counted
from syncverify.scenario.contract import Capabilities
from syncverify.scenario.coverage import scenario_features
from syncverify.scenario.feature_table import OPTIONAL_FEATURES
from syncverify.scenario.plain_features import PLAIN_VALUES
from syncverify.scenario.scenario import Scenario
from syncverify.scenario.space import Space

# The topic `buckets` of the space; scenarios spell it this way.
BUCKET_CAP: Final = "bucket_cap"
_TOPICS: Final[Mapping[str, str]] = {
    topic: "buckets" if topic == BUCKET_CAP else topic
    for topic in sorted(
        {"ranks", BUCKET_CAP, *PLAIN_VALUES, *OPTIONAL_FEATURES} - {"buckets"}
    )
}
FOCUS_TOPICS: Final = tuple(_TOPICS)
# Values that most scenarios have anyway: a focus is on the others.
_USUAL: Final[Mapping[str, tuple[str, ...]]] = {
    "ranks": ("1", "2"),
    "mesh": ("1 axis", "2 axes"),
    "parameters": ("replicated", "sharded"),
    "dtype": ("float32",),
    "reduction": ("none", "over 1 axis"),
    "accumulations": ("1", "2"),
    "steps": ("1",),
    "buckets": ("cap does not split",),
}


def check_focus(topic: str, capabilities: Capabilities, max_ranks: int) -> None:
    """Refuse a topic that does not exist, or of which a contract leaves no special value.

    Raises:
        UsageError: The topic is refused; the message names the nearest one.
    """
    if topic not in _TOPICS:
        near = difflib.get_close_matches(topic, FOCUS_TOPICS, n=1, cutoff=0.4)
        raise UsageError(
            f"unknown focus {topic!r}: "
            + (f"did you mean {near[0]!r}? " if near else "")
            + f"expected one of {', '.join(FOCUS_TOPICS)}"
        )
    values = Space(capabilities, max_ranks).values().get(_TOPICS[topic], [])
    if not {*values} - {*_USUAL.get(_TOPICS[topic], ())}:
        raise UsageError(
            f"nothing to focus on: the contract covers no special value of {topic!r} on up "
            f"to {counted(max_ranks, 'rank')}"
        )


def is_in_focus(scenario: Scenario, topic: str) -> bool:
    """Tell whether a scenario has a special value of a topic."""
    usual = _USUAL.get(_TOPICS[topic], ())
    return any(
        name == _TOPICS[topic] and value not in usual
        for name, value in scenario_features(scenario)
    )
