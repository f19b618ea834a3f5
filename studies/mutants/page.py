"""The table of the mutants that were tried, from the stored outcomes."""

from __future__ import annotations

import json
from typing import Any, Final

from studies.documents import RESULTS, Document, table

STORED: Final = RESULTS / "mutants.json"
_HEAD = ("operator", "tried", "noticed by scenarios", "by tests", "survivors")


def outcomes() -> str:
    """Return a row for each operator, and one for all."""
    entries = json.loads(STORED.read_text("utf-8"))
    operators = sorted({each["operator"] for each in entries})
    rows = [
        (f"`{name}`", *_counts([each for each in entries if each["operator"] == name]))
        for name in operators
    ]
    return "\n".join(table(_HEAD, [*rows, ("all", *_counts(entries))]))


def _counts(entries: list[dict[str, Any]]) -> tuple[int, int, int, int]:
    by_tests = sum(".py" in each["killed_by"] for each in entries)
    alive = sum(not each["killed_by"] for each in entries)
    return len(entries), len(entries) - by_tests - alive, by_tests, alive


PART: Final = Document("docs/mutants.md", outcomes, "outcomes of mutants")
