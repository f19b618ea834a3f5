"""The stored table of releases: the newest of each package, and the day of the question."""

from dataclasses import dataclass
from typing import Final, Self

from studies.rows import RESULTS, RowFile


@dataclass(frozen=True, slots=True)
class Release:
    """The newest release of a package.

    Attributes:
        package: Name of the package.
        version: Version, as the index spells it.
        date: Day on which its first file was uploaded.
        asked: Day on which the index said so.
        python: Versions of Python that it accepts, such as ">=3.12"; empty for any.
    """

    package: str
    version: str
    date: str
    asked: str
    python: str = ""


TABLE: Final = RowFile(RESULTS / "releases.jsonl", Release, ("package",))


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
        return cls(max(row.asked for row in rows), {row.package: row for row in rows})

    def write(self) -> None:
        """Store the table."""
        TABLE.write(self.newest.values())
