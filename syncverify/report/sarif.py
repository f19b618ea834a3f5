"""A report as SARIF 2.1.0, which code hosts show beside the lines of a change.

A rule is a property. A result is a violation at the guilty line of the subject, or at the
definition of the subject's class. GitHub does not show a result without a location.

Source: "SARIF support for code scanning" in GitHub's documentation.
"""

from __future__ import annotations

import hashlib
from collections import Counter
from importlib.metadata import version
from typing import Any

from syncverify.report.account import Account, Explanation
from syncverify.report.guilty_line import guilty_line, path_in_checkout

_SCHEMA = "https://json.schemastore.org/sarif-2.1.0.json"
# GitHub matches the results of two commits by this key of `partialFingerprints` alone.
_GITHUB_KEY = "primaryLocationLineHash"


def sarif_log(account: Account) -> dict[str, Any]:
    """Return plain JSON values: one run, whose rules are the violated properties."""
    statements = {each.property: each.statement for each in account.explanations}
    rules = dict(sorted(statements.items()))
    driver = {
        "name": "syncverify",
        "semanticVersion": version("syncverify"),
        "rules": [
            {"id": name, "shortDescription": {"text": text}}
            for name, text in rules.items()
        ],
    }
    met = Counter[str]()
    results = [
        _result(each, account.subject, met)
        | {"ruleIndex": [*rules].index(each.property)}
        for each in account.explanations
    ]
    run = {"tool": {"driver": driver}, "results": results}
    return {"$schema": _SCHEMA, "version": "2.1.0", "runs": [run]}


def _result(
    explanation: Explanation, subject: str, met: Counter[str]
) -> dict[str, Any]:
    return {
        "ruleId": explanation.property,
        "level": "error",
        "message": {"text": explanation.brief},
        "locations": _locations(explanation, subject),
        "partialFingerprints": {_GITHUB_KEY: _fingerprint(subject, explanation, met)},
    }


def _fingerprint(subject: str, explanation: Explanation, met: Counter[str]) -> str:
    """Return the same text for the same defect in two commits: its line may move."""
    identity = f"{subject} {explanation.property} {explanation.cause}"
    met[identity] += 1
    # CodeQL's form: a hash, and the number of the result among those with the same hash.
    return f"{hashlib.sha256(identity.encode()).hexdigest()[:16]}:{met[identity]}"


def _locations(explanation: Explanation, subject: str) -> list[dict[str, Any]]:
    """Return the guilty line as a location; no location where no source is known."""
    line = guilty_line(explanation.lines, subject)
    if line is None:
        return []
    uri = path_in_checkout(line.file) or line.file.as_uri()
    place = {"artifactLocation": {"uri": uri}, "region": {"startLine": line.number}}
    return [{"physicalLocation": place}]
