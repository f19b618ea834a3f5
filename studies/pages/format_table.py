"""The table of formats in docs/ci.md, from the settings."""

from __future__ import annotations

from typing import Final

from studies.documents import Document, table
from syncverify.settings import REPORT_FORMATS


def formats() -> str:
    """Return the table of the values of `--format`."""
    rows = (
        (f"`{name}`", words or "text alone.") for name, words in REPORT_FORMATS.items()
    )
    return "\n".join(table(("`--format`", "what it prints"), rows))


PART: Final = Document("docs/ci.md", formats, "formats")
