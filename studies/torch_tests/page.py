"""The table about torch's own tests, from the stored results."""

from collections import Counter
from collections.abc import Sequence
from typing import Final

from studies.documents import Document, days, table
from studies.torch_tests.results import TESTS, VERDICTS, PlayedTest


def page() -> str:
    """Return the number of tests with each verdict, by folder and by source."""
    rows = TESTS.read()
    folders = sorted({_folder(row) for row in rows})
    counted = [_counts(f"`{each}`", _in_folder(rows, each)) for each in folders]
    head = ("folder", "tests", *VERDICTS, "gloo passes")
    sources = ", ".join(sorted({row.source for row in rows}))
    versions = ", ".join(sorted({row.torch for row in rows}))
    played = f"{sources}, on torch {versions}, played {days(rows)}."
    return "\n".join([played, "", *table(head, [*counted, _counts("all", rows)])])


def _folder(row: PlayedTest) -> str:
    return row.file.rpartition("/")[0] or "."


def _in_folder(rows: Sequence[PlayedTest], folder: str) -> list[PlayedTest]:
    return [row for row in rows if _folder(row) == folder]


def _counts(name: str, rows: Sequence[PlayedTest]) -> list[object]:
    counts = Counter(row.verdict for row in rows)
    played = [row for row in rows if row.gloo not in {"", "skipped"}]
    passed = sum(row.gloo == "passed" for row in played)
    of_gloo = f"{passed} of {len(played)}" if played else "-"
    return [name, len(rows), *(counts[each] for each in VERDICTS), of_gloo]


PAGE: Final = Document("docs/how-we-know.md", page, "results")
