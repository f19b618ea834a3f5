"""The outcomes of mutants, and their table."""

import tomllib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from studies.documents import Document, days, table
from studies.rows import RESULTS, RowFile

EQUIVALENT: Final = Path(__file__).with_name("equivalent.toml")
_HEAD = ("operator", "tried", "noticed by scenarios", "by tests", "survivors")


@dataclass(frozen=True, slots=True)
class Row:
    """The outcome of a mutant.

    Attributes:
        id: Id of the mutant, which begins with its operator.
        date: Day of the trial.
        killed_by: A property and its cause, a test, or the end of a process; empty for a
            survivor.
        examples: Scenarios that were played, the one that showed the mistake included.
        seconds: Time of all stages.
    """

    id: str
    date: str
    killed_by: str
    examples: int
    seconds: float

    @property
    def operator(self) -> str:
        """Name of the operator."""
        return self.id.partition("-")[0]


def rows_in(path: Path) -> RowFile[Row]:
    """Return the rows of a file."""
    return RowFile(path, Row, ("id",))


def reasons() -> dict[str, str]:
    """Read the reason why a mutant is equivalent, by id of the mutant."""
    return tomllib.loads(EQUIVALENT.read_text(encoding="utf-8"))


def outcomes(rows: Sequence[Row]) -> Iterator[str]:
    """Yield a table with a row for each operator, and one for all."""
    cells = [
        (f"`{name}`", *_counts([row for row in rows if row.operator == name]))
        for name in sorted({row.operator for row in rows})
    ]
    return table(_HEAD, [*cells, ("all", *_counts(rows))])


def _counts(rows: Sequence[Row]) -> tuple[int, int, int, int]:
    by_tests = sum(".py" in row.killed_by for row in rows)
    alive = sum(not row.killed_by for row in rows)
    return len(rows), len(rows) - by_tests - alive, by_tests, alive


def page() -> str:
    """Return the table of the stored outcomes."""
    stored = rows_in(RESULTS / "mutants.jsonl").read()
    return "\n".join([f"Tried {days(stored)}.", "", *outcomes(stored)])


PART: Final = Document("docs/how-we-know.md", page, "outcomes of mutants")
