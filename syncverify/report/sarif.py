"""A report as SARIF 2.1.0, which code hosts show beside the lines of a change.

A rule is a property, and a result is a violation at the guilty line of the subject.
"""

from __future__ import annotations

from collections.abc import Sequence
from importlib.metadata import version
from typing import Any

from syncverify.judge.properties import ALL_PROPERTIES
from syncverify.report.annotations import few_lines
from syncverify.report.checkout import path_in_checkout
from syncverify.report.guilty_line import guilty_line
from syncverify.report.report import Report
from syncverify.search.found_violation import FoundViolation

_SCHEMA = "https://json.schemastore.org/sarif-2.1.0.json"
_STATEMENTS = {entry.name: entry.statement for entry in ALL_PROPERTIES}


def sarif_log(report: Report) -> dict[str, Any]:
    """Return plain JSON values: one run, whose rules are the violated properties."""
    names = sorted({entry.violation.property for entry in report.violations})
    driver = {
        "name": "syncverify",
        "semanticVersion": version("syncverify"),
        "rules": [
            {"id": name, "shortDescription": {"text": _STATEMENTS[name]}}
            for name in names
        ],
    }
    results = [_result(entry, report, names) for entry in report.violations]
    run = {"tool": {"driver": driver}, "results": results}
    return {"$schema": _SCHEMA, "version": "2.1.0", "runs": [run]}


def _result(
    entry: FoundViolation, report: Report, rules: Sequence[str]
) -> dict[str, Any]:
    violation = entry.violation
    return {
        "ruleId": violation.property,
        "ruleIndex": rules.index(violation.property),
        "level": "error",
        "message": {"text": few_lines(entry, report)},
        "locations": _locations(entry, report.subject),
        # A code host compares results of two commits by it: the line may move.
        "partialFingerprints": {
            "violation/v1": f"{report.subject} {violation.property} {violation.cause}"
        },
    }


def _locations(entry: FoundViolation, subject: str) -> list[dict[str, Any]]:
    line = guilty_line(entry.violation, subject)
    if line is None:
        return []
    uri = path_in_checkout(line.file) or line.file.as_uri()
    return [
        {
            "physicalLocation": {
                "artifactLocation": {"uri": uri},
                "region": {"startLine": line.number},
            }
        }
    ]
