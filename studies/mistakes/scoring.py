"""The score of a mistake: is it found, is its cause right, is its fix one; and the table of all."""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Final

import click

from studies.documents import Document, days, table
from studies.mistakes.corpus import (
    KINDS,
    SUBJECTS,
    Mistake,
    base_source,
    mistake_named,
    mistakes,
)
from studies.mistakes.fixes import NUM_SCENARIOS, Played, applied, compared, played
from studies.mistakes.playing import Told, told_about
from studies.rows import RESULTS, RowFile, today
from syncverify.search.found_violation import Fix

EXAMPLES: Final = 40


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

    @property
    def is_bad(self) -> bool:
        """Tell whether it is not found, or something about it is wrong."""
        return not self.identities or bool(self.wrong_certain or self.num_regressions)

    @property
    def num_regressions(self) -> int:
        """Number of fixes that are none."""
        return sum(verdict != "ok" for verdict in self.fixes)


MISTAKES: Final = RowFile(RESULTS / "mistakes.jsonl", Row, ("name",))


def right_programs() -> dict[str, Played]:
    """Play the bases in the scenarios in which fixes are compared."""
    sources = {base: base_source(base) for base in SUBJECTS}
    return {base: played(base, source) for base, source in sources.items()}


def scored(
    name: str, right: dict[str, Played], examples: int, *, tells: bool = False
) -> Row:
    """Play a mistake, and its fixes; print the reports if it `tells`."""
    mistake = mistake_named(name)
    found = told_about(mistake.base, mistake.text, examples)
    told = [violation for violation, _ in found]
    if tells:
        click.echo("\n\n".join([*(each.text for each in told), ""]))
    fixes = dict.fromkeys(fix for _, fix in found if fix is not None)
    return Row(
        name,
        today(),
        tuple(each.identity for each in told),
        is_named(mistake, told),
        wrong_certain(mistake, told),
        tuple(_verdict(mistake, fix, right[mistake.base]) for fix in fixes),
    )


def is_named(mistake: Mistake, told: Sequence[Told]) -> bool:
    """Tell whether the first violation names the mistake."""
    if not told or told[0].cause not in mistake.causes:
        return False
    return not mistake.says or any(words in told[0].text for words in mistake.says)


def wrong_certain(mistake: Mistake, told: Iterable[Told]) -> tuple[str, ...]:
    """Return the causes that are called certain and are wrong."""
    known = {*mistake.causes, *mistake.true}
    certain = (each.cause for each in told if each.is_certain)
    return tuple(cause for cause in certain if cause not in known)


def _verdict(mistake: Mistake, fix: Fix, right: Played) -> str:
    try:
        source = applied(mistake.text, fix)
    except ValueError:
        return "no program"
    return compared(right, played(mistake.base, source))


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
