"""The stored table of releases: the newest of each package, and the day of the question."""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Final, Self

TABLE: Final = Path(__file__).parents[1] / "results" / "releases.json"


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
        content = json.loads(TABLE.read_text(encoding="utf-8"))
        newest = content["newest"].items()
        return cls(content["date"], {name: Release(**entry) for name, entry in newest})

    def write(self) -> None:
        """Store the table."""
        text = json.dumps(asdict(self), indent=1)
        TABLE.write_text(f"{text}\n", encoding="utf-8")
