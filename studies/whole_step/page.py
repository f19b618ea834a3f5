"""The table of recipes, from stored results."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final

from studies.documents import ROOT, Document, days, table
from studies.rows import RESULTS, RowFile

EXAMPLES: Final = ROOT / "examples" / "parity"


@dataclass(frozen=True, slots=True)
class Row:
    """The result of an example.

    Attributes:
        file: Name of the example.
        date: Day of the play.
        missing: Package that is missing; empty where it was played.
        layouts: Names of the layouts.
        right: Number of right layouts.
        values: Number of compared values.
        worst: Largest difference.
        cpu_seconds: CPU seconds.
    """

    file: str
    date: str
    missing: str = ""
    layouts: tuple[str, ...] = ()
    right: int = 0
    values: int = 0
    worst: float = 0.0
    cpu_seconds: float = 0.0


PLAYS: Final = RowFile(RESULTS / "parity_examples.jsonl", Row, ("file",))


def page() -> str:
    """Return the table of recipes."""
    rows = PLAYS.read()
    head = ("file", "what", "lines", "layouts", "right", "largest difference", "CPU s")
    return "\n".join([f"Played {days(rows)}.", "", *table(head, map(_row, rows))])


def _row(row: Row) -> Iterator[str]:
    text = (EXAMPLES / f"{row.file}.py").read_text("utf-8")
    yield f"`{row.file}.py`"
    yield text.split('"""')[1].splitlines()[0].split(" Compare with")[0]
    yield str(len(text.splitlines()))
    if row.missing:
        yield from (f"not played: `{row.missing}` is missing", "", "", "")
        return
    layouts = row.layouts
    yield "; ".join(layouts) if len(layouts) < 4 else f"{len(layouts)} layouts"
    yield f"{row.right} of {len(layouts)}"
    yield f"{row.worst:.0e}"
    yield str(row.cpu_seconds)


PAGE: Final = Document("docs/whole-step-recipes.md", page, "recipes")
