"""The stored verdicts about the programs of the red team, and their table."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from statistics import median
from typing import Final

from studies.documents import Document, days, table
from studies.redteam.program import programs
from studies.redteam.scoring import Score
from studies.rows import RESULTS, RowFile, today

_OF_WRONG: Final = "caught", "missed"
_OF_RIGHT: Final = "silent", "accused", "not judged"


@dataclass(frozen=True, slots=True)
class Row:
    """The verdict about a program.

    Attributes:
        name: Name of the program.
        date: Day of the search.
        limit: Most scenarios of the search.
        examples: Scenarios up to the verdict.
        verdict: As that of a `Score`.
        identity: Property and cause of the first violation, or the reason of a refusal.
    """

    name: str
    date: str
    limit: int
    examples: int
    verdict: str
    identity: str = ""


PROGRAMS: Final = RowFile(RESULTS / "redteam.jsonl", Row, ("name",))


def write(scores: Sequence[Score], limit: int) -> None:
    """Write the verdicts, those of other programs as they are stored, and the table."""
    names = {program.name for program in programs()}
    stored = (row for row in PROGRAMS.read() if row.name in names)
    PROGRAMS.write(row for row in stored if row.limit == limit)
    PROGRAMS.put(
        *(
            Row(each.name, today(), limit, each.examples, each.verdict, each.identity)
            for each in scores
        )
    )
    PAGE.write()


def page() -> str:
    """Return the number of programs by verdict, and the names of those without a right one."""
    rows = PROGRAMS.read()
    counts = Counter(row.verdict for row in rows)
    cells = [
        ("wrong", *_counted(counts, _OF_WRONG), "", "", ""),
        ("right", "", "", *_counted(counts, _OF_RIGHT)),
    ]
    until = median(row.examples for row in rows if row.verdict == "caught")
    extent = (
        f"At most {max(row.limit for row in rows)} scenarios a program, on `sim`, seed 0, played "
        f"{days(rows)}. A wrong program is caught after {until:g} scenarios in the median."
    )
    lines = [extent, "", *table(("programs", *_OF_WRONG, *_OF_RIGHT), cells)]
    listed = [row for row in rows if row.verdict in {"missed", "accused", "not judged"}]
    lines += ["", ", ".join(f"`{row.name}` is {row.verdict}" for row in listed) + "."]
    return "\n".join(lines)


def _counted(counts: Counter[str], verdicts: Sequence[str]) -> list[int]:
    return [counts[verdict] for verdict in verdicts]


PAGE: Final = Document("docs/how-we-know.md", page, "programs")
