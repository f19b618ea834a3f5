"""The stored table of releases: the newest of each package, and the day of the question."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final, Self

from studies.rows import RESULTS, RowFile


@dataclass(frozen=True, slots=True)
class Release:
    """One release of a package.

    Attributes:
        version: Version, as the index spells it.
        date: Day on which its first file was uploaded.
        python: Versions of Python that it accepts, such as ">=3.12"; empty for any.
    """

    version: str
    date: str
    python: str


@dataclass(frozen=True, slots=True)
class _Row:
    """The newest release of a package.

    Attributes:
        package: Name of the package.
        version: As that of a `Release`, as `date` and `python`.
        date: Day of its first file.
        asked: Day on which the index was read.
        python: Versions of Python that it accepts.
    """

    package: str
    version: str
    date: str
    asked: str
    python: str = ""


TABLE: Final = RowFile(RESULTS / "releases.jsonl", _Row, ("package",))


@dataclass(frozen=True, slots=True)
class ReleaseTable:
    """Newest releases, whatever Python they need.

    Attributes:
        date: Day on which the index was read.
        newest: Newest release by the name of its package.
    """

    date: str
    newest: dict[str, Release]

    @classmethod
    def read(cls) -> Self:
        """Read the stored table."""
        rows = TABLE.read()
        newest = {
            row.package: Release(row.version, row.date, row.python) for row in rows
        }
        return cls(max(row.asked for row in rows), newest)

    def write(self) -> None:
        """Store the table."""
        TABLE.write(
            _Row(name, each.version, each.date, self.date, each.python)
            for name, each in self.newest.items()
        )
