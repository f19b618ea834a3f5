"""Stored results of studies: JSON Lines, one flat record a line.

{"date": "2026-11-27", "examples": 200, "subject": "ddp", "torch": "2.15.0", "violations": []}

A record has names, outcomes, numbers, versions and the day of its play. A text that the code prints is
no part of it, since the code changes its texts: a page takes them from the code, by name.
"""

import json
from collections.abc import Callable, Iterable
from dataclasses import asdict, dataclass, fields
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Final, Generic, TypeVar

from syncverify.errors import UsageError

RESULTS: Final = Path(__file__).parent / "results"
Row = TypeVar("Row")


@dataclass(frozen=True, slots=True)
class RowFile(Generic[Row]):
    """A file of rows.

    Attributes:
        path: The file; without it there are no rows.
        kind: Dataclass of a row. Its fields are strings, numbers, bools, None, or tuples of them.
        key: Names of the fields that identify a row, and order the file.
    """

    path: Path
    kind: Callable[..., Row]
    key: tuple[str, ...]

    def read(self) -> list[Row]:
        """Return the rows, ordered by key.

        Raises:
            UsageError: A line is no record of these fields.
        """
        text = self.path.read_text(encoding="utf-8") if self.path.exists() else ""
        return [self._row(*each) for each in enumerate(text.splitlines(), 1)]

    def write(self, rows: Iterable[Row]) -> None:
        """Store these rows alone; a reader sees the whole file of before, or that of after."""
        part = self.path.with_suffix(".part")
        ordered = sorted(rows, key=self._key_of)
        part.write_text("".join(map(_line, ordered)), encoding="utf-8")
        part.replace(self.path)

    def put(self, *rows: Row) -> None:
        """Store rows beside the others; a row replaces the one of the same key."""
        by_key = {self._key_of(row): row for row in [*self.read(), *rows]}
        self.write(by_key.values())

    def _row(self, number: int, line: str) -> Row:
        try:
            record = json.loads(line).items()
            return self.kind(
                **{k: tuple(v) if isinstance(v, list) else v for k, v in record}
            )
        except (AttributeError, TypeError, ValueError) as error:
            raise UsageError(f"{self.path}:{number}: {error}") from None

    def _key_of(self, row: Row) -> tuple[Any, ...]:
        return tuple(getattr(row, name) for name in self.key)


def today() -> str:
    """Return the day in UTC, such as `2026-11-27`: the date of a row."""
    return datetime.now(UTC).date().isoformat()


def _line(row: Any) -> str:
    """Return a row as a line; a field that has its default is left out."""
    defaults = {field.name: field.default for field in fields(row)}
    record = {k: v for k, v in asdict(row).items() if v != defaults[k]}
    return json.dumps(record, sort_keys=True, ensure_ascii=False) + "\n"
