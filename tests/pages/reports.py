"""Write the table of public reports that a comparison of a whole step finds."""

from studies.documents import Document, table
from tests.syncverify.faces.whole_step.reports.table import REPORTS


def reports() -> str:
    """Return the table of public reports whose mistakes a comparison of a whole step finds."""
    rows = (
        (
            f"[{each.number}]({each.url})",
            each.mistake,
            "collectives" if each.quantity is None else each.quantity.value,
            each.words,
            f"`{each.name}`",
        )
        for each in REPORTS
    )
    head = "report", "mistake", "first seen in", "part of what `parity` prints", "class"
    return "\n".join(table(head, rows))


PART = Document("docs/whole-step-reports.md", reports, "reports")
