"""The contract of a subject as a table: features, promises, and what was seen of them."""

from __future__ import annotations

from typing import Any

from syncverify.report.report import Report
from syncverify.scenario.contract import Capabilities
from syncverify.scenario.feature_table import OPTIONAL_FEATURES
from syncverify.scenario.plain_features import PLAIN_VALUES


def contract_table(report: Report, capabilities: Capabilities) -> list[dict[str, Any]]:
    """List the topics of a contract, each with its features."""
    topics = dict.fromkeys((*PLAIN_VALUES, *OPTIONAL_FEATURES))
    return [
        {"topic": topic, "features": _features(topic, report, capabilities)}
        for topic in topics
    ]


def _features(
    topic: str, report: Report, capabilities: Capabilities
) -> list[dict[str, Any]]:
    words = {each.feature: each for each in report.beyond}
    counts = report.coverage.get(topic, {})
    found = list[dict[str, Any]]()
    for value in (*PLAIN_VALUES.get(topic, ()), *OPTIONAL_FEATURES.get(topic, ())):
        seen = words.get(f"{topic}={value}")
        found.append(
            {
                "value": value,
                "promise": _promise(topic, value, capabilities),
                "scenarios": counts.get(value, 0) + (seen.num_scenarios if seen else 0),
                "word": seen.rating if seen else "",
                "about": (seen.summary or seen.reason) if seen else "",
            }
        )
    return found


def _promise(topic: str, value: str, capabilities: Capabilities) -> str:
    if not capabilities.covers(topic, value):
        is_plain = value in PLAIN_VALUES.get(topic, ())
        return "left out" if is_plain else "beyond the contract"
    if value not in OPTIONAL_FEATURES.get(topic, ()):
        return "right"
    refuses = capabilities.may_refuse(topic, value)
    return "right, or a clear error" if refuses else "right"
