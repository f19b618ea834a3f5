"""The stored scores of the mistakes, and their table."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Final, Self

from studies.documents import Document, days, table
from studies.mistakes.corpus import KINDS, mistake_named, mistakes
from studies.mistakes.fixes import NUM_SCENARIOS
from studies.mistakes.scoring import EXAMPLES, Score
from studies.rows import RESULTS, RowFile, today


@dataclass(frozen=True, slots=True)
class Row:
    """The score of a mistake.

    Attributes:
        name: Name of the mistake.
        date: Day of the play.
        identities: Property and cause of each violation, in the order of the report.
        is_right: Whether the first violation names the mistake.
        wrong_certain: Causes that are called certain and are wrong.
        fixes: The verdict about each fix of the report.
    """

    name: str
    date: str
    identities: tuple[str, ...] = ()
    is_right: bool = False
    wrong_certain: tuple[str, ...] = ()
    fixes: tuple[str, ...] = ()

    @classmethod
    def of(cls, score: Score) -> Self:
        """Return the row of a score of today."""
        identities = tuple(each.identity for each in score.told)
        fixes = tuple(each.verdict for each in score.fixes)
        right = score.is_right, score.wrong_certain
        return cls(score.name, today(), identities, *right, fixes)

    @property
    def is_bad(self) -> bool:
        """Tell whether it is not found, or something about it is wrong."""
        return not self.identities or bool(self.wrong_certain or self.num_regressions)

    @property
    def num_regressions(self) -> int:
        """Number of fixes that are none."""
        return sum(verdict != "ok" for verdict in self.fixes)


MISTAKES: Final = RowFile(RESULTS / "mistakes.jsonl", Row, ("name",))


def page() -> str:
    """Return the figures of the stored mistakes that are still in the corpus."""
    names = {each.name for each in mistakes()}
    rows = [row for row in MISTAKES.read() if row.name in names]
    extent = (
        f"Each mistake is searched in {EXAMPLES} scenarios on `sim`, seed 0, and each fix is played "
        f"in {NUM_SCENARIOS} other scenarios beside the right program. Played {days(rows)}."
    )
    return "\n".join([extent, "", *summary(rows)])


def summary(rows: Iterable[Row]) -> Iterator[str]:
    """Yield a table of figures by kind."""
    by_kind = [(row, mistake_named(row.name).kind) for row in rows]
    head = ("kind", "mistakes", "found", "right cause", "wrong certain", "fix offered")
    cells = (
        (name, *_figures([row for row, kind in by_kind if name in {kind, "all"}]))
        for name in (*KINDS, "all")
    )
    return table((*head, "fixes that are none"), cells)


def _figures(rows: Sequence[Row]) -> tuple[int, ...]:
    return (
        len(rows),
        sum(bool(row.identities) for row in rows),
        sum(row.is_right for row in rows),
        sum(bool(row.wrong_certain) for row in rows),
        sum(bool(row.fixes) for row in rows),
        sum(row.num_regressions for row in rows),
    )


PAGE: Final = Document("docs/how-we-know.md", page, "mistakes")
