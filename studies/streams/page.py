"""The table of the compared verdicts, from the stored results."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from studies.documents import Document, days, table
from studies.rows import RESULTS, RowFile, today
from studies.streams.playing import RIGHT, Compared


@dataclass(frozen=True, slots=True)
class Row:
    """The compared verdicts of a subject.

    Attributes:
        subject: Name of the subject.
        date: Day of the last play.
        scenarios: Number of scenarios.
        wrong: Number of those with a violation on `sim`.
        different: Tokens of those with another verdict on `streams`.
    """

    subject: str
    date: str
    scenarios: int
    wrong: int
    different: tuple[str, ...] = ()


VERDICTS: Final = RowFile(RESULTS / "streams.jsonl", Row, ("subject",))


def read() -> dict[str, Compared]:
    """Return the stored result of each subject."""
    return {
        row.subject: Compared(row.scenarios, row.wrong, [*row.different])
        for row in VERDICTS.read()
    }


def keep(name: str, found: Compared) -> None:
    """Store the result of a subject."""
    different = tuple(found.different)
    row = Row(name, today(), found.num_scenarios, found.num_wrong, different)
    VERDICTS.put(row)


def page() -> str:
    """Return the sums of the right subjects, and those of the defects."""
    rows = VERDICTS.read()
    right = [row for row in rows if row.subject in RIGHT]
    wrong = [row for row in rows if row.subject not in RIGHT]
    head = ("subjects", "scenarios", "with a violation", "another verdict")
    cells = (
        (", ".join(f"`{row.subject}`" for row in right), *_sums(right)),
        (f"{len(wrong)} defects of the bug bank", *_sums(wrong)),
    )
    return "\n".join(["", f"Played {days(rows)}.", "", *table(head, cells), ""])


def _sums(rows: Sequence[Row]) -> tuple[int, int, int]:
    return (
        sum(row.scenarios for row in rows),
        sum(row.wrong for row in rows),
        sum(len(row.different) for row in rows),
    )


PART: Final = Document("docs/scripts.md", page, "verdicts of sim and streams")
