"""Parts of pages that tools write from what is stored: a test compares each."""

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final, Protocol

from studies.releases.facts import facts
from studies.releases.marks import filled
from studies.releases.release_table import ReleaseTable
from syncverify.errors import UsageError

ROOT: Final = Path(__file__).parents[1]


@dataclass(frozen=True, slots=True)
class Document:
    """A part of a page that a tool writes from what is stored; people write the rest.

    Attributes:
        path: The page, from the root of the checkout.
        text: Returns the part, in Markdown.
        part: Name of the part in `<!-- NAME -->` and `<!-- end of NAME -->`; empty where `text`
            returns the whole page.
    """

    path: str
    text: Callable[[], str]
    part: str = ""

    @property
    def file(self) -> Path:
        """The page in this checkout."""
        return ROOT / self.path

    def written(self) -> str:
        """Return the whole page, with the stored facts about releases in its marks."""
        page = self.text()
        if self.part:
            page = with_part(self.file, self.part, page)
        return filled(page, facts(ReleaseTable.read()))

    def write(self) -> None:
        """Write the page."""
        self.file.write_text(self.written(), encoding="utf-8")


def with_part(page: Path, name: str, text: str) -> str:
    """Return a page with a new text between two marks.

    Raises:
        UsageError: There is no such page, or it lacks the marks, or has the end first.
    """
    if not page.is_file():
        raise UsageError(f"no document {str(page)!r}")
    first, last = f"<!-- {name} -->", f"<!-- end of {name} -->"
    before, start, rest = page.read_text(encoding="utf-8").partition(first)
    _, end, after = rest.partition(last)
    if not (start and end):
        raise UsageError(f"{str(page)!r} lacks the lines {first} and {last}")
    space = "\n\n" if "\n" in text else ""
    return f"{before}{start}{space}{text.strip()}{space}{end}{after}"


def write_part(page: Path, name: str, text: str) -> None:
    """Write a new text between two marks of a page."""
    page.write_text(with_part(page, name, text), encoding="utf-8")


class Dated(Protocol):
    """A row with the day of its play."""

    @property
    def date(self) -> str:
        """Day, such as `2026-11-27`."""


def days(rows: Iterable[Dated]) -> str:
    """Say when rows were played."""
    first, *others = sorted({row.date for row in rows})
    return f"from {first} to {others[-1]}" if others else f"on {first}"


def table(head: Sequence[str], rows: Iterable[Iterable[object]]) -> Iterator[str]:
    """Yield the lines of a table in Markdown."""
    yield f"| {' | '.join(head)} |"
    yield f"|{'---|' * len(head)}"
    for row in rows:
        yield f"| {' | '.join(map(str, row))} |"
