"""A report as SARIF 2.1.0, which code hosts show beside the lines of a change.

A rule is a property. A result is a violation at the guilty line of the subject, or at the
definition of the subject's class. GitHub does not show a result without a location.

Source: "SARIF support for code scanning" in GitHub's documentation.
"""

import hashlib
from collections import Counter
from importlib.metadata import version
from typing import Any

from syncverify.report.account import Account, Explanation
from syncverify.report.annotations import guilty_line, path_in_checkout

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
    met, results = Counter[str](), list[dict[str, Any]]()
    for each in account.explanations:
        # The same text for the same defect in two commits: its line may move.
        identity = f"{account.subject} {each.property} {each.cause}"
        met[identity] += 1
        # CodeQL's form: a hash, and the number of the result among those with the same hash.
        hashed = hashlib.sha256(identity.encode()).hexdigest()[:16]
        results.append(
            {
                "ruleId": each.property,
                "level": "error",
                "message": {"text": each.brief},
                "locations": _locations(each, account.subject),
                "partialFingerprints": {_GITHUB_KEY: f"{hashed}:{met[identity]}"},
                "ruleIndex": [*rules].index(each.property),
            }
        )
    run = {"tool": {"driver": driver}, "results": results}
    return {"$schema": _SCHEMA, "version": "2.1.0", "runs": [run]}


def _locations(explanation: Explanation, subject: str) -> list[dict[str, Any]]:
    """Return the guilty line as a location; no location where no source is known."""
    line = guilty_line(explanation.lines, subject)
    if line is None:
        return []
    uri = path_in_checkout(line.file) or line.file.as_uri()
    place = {"artifactLocation": {"uri": uri}, "region": {"startLine": line.number}}
    return [{"physicalLocation": place}]
