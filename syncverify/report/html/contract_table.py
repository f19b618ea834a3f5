"""The contract of a subject as a table: features, promises, and what was seen of them."""

from __future__ import annotations

from typing import Any

from syncverify.report.report import Report
from syncverify.scenario.contract import Capabilities
from syncverify.scenario.feature_row import Feature
from syncverify.scenario.feature_table import FEATURES, OPTIONAL


def contract_table(report: Report, capabilities: Capabilities) -> list[dict[str, Any]]:
    """List the topics of a contract, each with its features."""
    topics = dict.fromkeys(feature.topic for feature in FEATURES)
    return [
        {"topic": topic, "features": _features(topic, report, capabilities)}
        for topic in topics
    ]


def _features(
    topic: str, report: Report, capabilities: Capabilities
) -> list[dict[str, Any]]:
    observed = {each.feature: each for each in report.beyond}
    counts = report.coverage.get(topic, {})
    found = list[dict[str, Any]]()
    for feature in (each for each in FEATURES if each.topic == topic):
        seen = observed.get(str(feature))
        found.append(
            {
                "value": feature.value,
                "promise": _promise(feature, capabilities),
                "scenarios": counts.get(feature.value, 0)
                + (seen.num_scenarios if seen else 0),
                "word": seen.rating if seen else "",
                "about": (seen.summary or seen.reason) if seen else "",
            }
        )
    return found


def _promise(feature: Feature, capabilities: Capabilities) -> str:
    if not capabilities.covers(*feature):
        is_beyond = feature in OPTIONAL or feature in capabilities.newer_features
        return "beyond the contract" if is_beyond else "left out"
    refuses = feature in OPTIONAL and capabilities.may_refuse(*feature)
    return "right, or a clear error" if refuses else "right"
