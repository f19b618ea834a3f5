"""The table of the mutants that were tried, from the stored outcomes."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from studies.documents import Document, days, table
from studies.mutants.results import Row, rows_in
from studies.rows import RESULTS

MUTANTS: Final = rows_in(RESULTS / "mutants.jsonl")
_HEAD = ("operator", "tried", "noticed by scenarios", "by tests", "survivors")


def outcomes() -> str:
    """Return a row for each operator, and one for all."""
    stored = MUTANTS.read()
    cells = [
        (f"`{name}`", *_counts([row for row in stored if row.operator == name]))
        for name in sorted({row.operator for row in stored})
    ]
    counted = table(_HEAD, [*cells, ("all", *_counts(stored))])
    return "\n".join([f"Tried {days(stored)}.", "", *counted])


def _counts(rows: Sequence[Row]) -> tuple[int, int, int, int]:
    by_tests = sum(".py" in row.killed_by for row in rows)
    alive = sum(not row.killed_by for row in rows)
    return len(rows), len(rows) - by_tests - alive, by_tests, alive


PART: Final = Document("docs/how-we-know.md", outcomes, "outcomes of mutants")
