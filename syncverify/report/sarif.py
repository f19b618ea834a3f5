"""A report as SARIF 2.1.0, which code hosts show beside the lines of a change.

A rule is a property. A result is a violation at the guilty line of the subject, or at the
definition of the subject's class. GitHub does not show a result without a location.

Source: "SARIF support for code scanning" in GitHub's documentation.
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from importlib.metadata import version
from typing import Any

from syncverify.judge.properties.registry import STATEMENTS
from syncverify.judge.violation import Violation
from syncverify.report.annotations import brief_of
from syncverify.report.guilty_line import guilty_line, path_in_checkout
from syncverify.report.report import Report
from syncverify.search.found_violation import FoundViolation

_SCHEMA = "https://json.schemastore.org/sarif-2.1.0.json"
# GitHub matches the results of two commits by this key of `partialFingerprints` alone.
_GITHUB_KEY = "primaryLocationLineHash"


def sarif_log(report: Report) -> dict[str, Any]:
    """Return plain JSON values: one run, whose rules are the violated properties."""
    names = sorted({found.violation.property for found in report.violations})
    driver = {
        "name": "syncverify",
        "semanticVersion": version("syncverify"),
        "rules": [
            {"id": name, "shortDescription": {"text": STATEMENTS[name]}}
            for name in names
        ],
    }
    results = [_result(found, report, names) for found in report.violations]
    run = {"tool": {"driver": driver}, "results": results}
    return {"$schema": _SCHEMA, "version": "2.1.0", "runs": [run]}


def _result(
    found: FoundViolation, report: Report, rules: Sequence[str]
) -> dict[str, Any]:
    violation = found.violation
    return {
        "ruleId": violation.property,
        "ruleIndex": rules.index(violation.property),
        "level": "error",
        "message": {"text": brief_of(found, report)},
        "locations": _locations(found, report.subject),
        "partialFingerprints": {_GITHUB_KEY: _fingerprint(report.subject, violation)},
    }


def _fingerprint(subject: str, violation: Violation) -> str:
    """Return the same text for the same defect in two commits: its line may move."""
    identity = f"{subject} {violation.property} {violation.cause}"
    # CodeQL's form: a hash, and the number of the result among those with the same hash.
    return f"{hashlib.sha256(identity.encode()).hexdigest()[:16]}:1"


def _locations(found: FoundViolation, subject: str) -> list[dict[str, Any]]:
    """Return the guilty line as a location; no location where no source is known."""
    line = guilty_line(found.violation, subject)
    if line is None:
        return []
    uri = path_in_checkout(line.file) or line.file.as_uri()
    place = {"artifactLocation": {"uri": uri}, "region": {"startLine": line.number}}
    return [{"physicalLocation": place}]
