"""Write the page of all causes that a violation may have: `make catalogue`."""

from collections.abc import Iterator
from typing import Final

from studies.documents import Document, table
from syncverify.judge.evidence import Evidence
from syncverify.judge.properties.registry import CAUSES
from syncverify.report.hints import certainty

_COLUMNS: Final = (
    "cause",
    "the mistake",
    "certainty without the trace",
    "repair to try first",
)


def page() -> str:
    """Return the table."""
    return "\n".join(table(_COLUMNS, _rows()))


def _rows() -> Iterator[tuple[str, ...]]:
    for cause, mistake in CAUSES.items():
        sure = certainty(cause, Evidence(is_proven=False)).partition(":")[0]
        sure = sure if sure in {"certain", "likely"} else "open"
        yield f"`{cause}`", mistake.meaning, sure, mistake.hint


PAGE: Final = Document("docs/reference/causes.md", page, "causes")
