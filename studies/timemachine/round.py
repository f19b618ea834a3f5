"""A round of all pairs, which goes on where it was cut off."""

from __future__ import annotations

import json
from pathlib import Path


class Round:
    """The sides that a round has played, in a file until the round is over.

    Args:
        file: Where they are kept.
    """

    def __init__(self, file: Path) -> None:
        self._file = file

    def has(self, pair: str, side: str) -> bool:
        """Tell whether the round has played a side."""
        return [pair, side] in self._played()

    def add(self, pair: str, side: str) -> None:
        """Note that a side was played."""
        self._file.parent.mkdir(parents=True, exist_ok=True)
        played = [*self._played(), [pair, side]]
        self._file.write_text(json.dumps(played), encoding="utf-8")

    def end(self) -> None:
        """Forget the round, which is over."""
        self._file.unlink(missing_ok=True)

    def _played(self) -> list[list[str]]:
        if not self._file.exists():
            return []
        played: list[list[str]] = json.loads(self._file.read_text(encoding="utf-8"))
        return played
