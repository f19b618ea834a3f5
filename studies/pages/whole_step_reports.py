"""The table of public reports whose mistakes a comparison of a whole step finds."""

from __future__ import annotations

from typing import Final

from studies.documents import Document, table
from tests.syncverify.whole_step.reports.table import REPORTS


def page() -> str:
    """Return the table."""
    rows = [
        (
            f"[{each.number}]({each.url})",
            each.mistake,
            "collectives" if each.quantity is None else each.quantity.value,
            each.words,
            f"`{each.file}`",
        )
        for each in REPORTS
    ]
    head = (
        "report",
        "mistake",
        "first seen in",
        "part of what `parity` prints",
        "file",
    )
    return "\n".join(table(head, rows))


PAGE: Final = Document("docs/whole-step-reports.md", page, "reports")
