"""Stored results of the scripts, and their table in docs/findings.md."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Final, Self

from studies.documents import Document, table
from studies.findings.playing import NOT_SHOWN, Environment, Played, scripts
from studies.rows import RESULTS, RowFile, today


@dataclass(frozen=True, slots=True, kw_only=True)
class Row:
    """The result of a script.

    Attributes:
        torch: Release of torch.
        script: Name of the script.
        date: Day of the play.
        python: Version of Python.
        peer: Name and version of the package that the script is about; empty for torch's.
        verdict: As that of `Played`.
        patched: The verdict with the proposed patch; empty if there is none.
    """

    torch: str
    script: str
    date: str
    python: str
    peer: str = ""
    verdict: str
    patched: str = ""

    @classmethod
    def of(cls, environment: Environment, script: Path, result: Played) -> Self:
        """Return the row of a result of today."""
        return cls(
            torch=environment.torch,
            script=script.stem,
            date=today(),
            python=environment.version,
            peer=environment.peer(script),
            verdict=result.verdict,
            patched=result.patched,
        )


PLAYS: Final = RowFile(RESULTS / "findings.jsonl", Row, ("torch", "script"))


def plays() -> str:
    """Return the table of the stored results."""
    rows = {(row.torch, row.script): row for row in PLAYS.read()}
    releases = sorted(
        {torch for torch, _ in rows}, key=lambda each: [*map(int, each.split("."))]
    )
    cells = (
        (
            f"`{script.stem}`",
            *(_cell(rows.get((torch, script.stem))) for torch in releases),
        )
        for script in scripts()
    )
    return "\n".join(table(("script", *(f"torch {each}" for each in releases)), cells))


def _cell(row: Row | None) -> str:
    if row is None:
        return "not played"
    words = row.verdict
    if row.patched == NOT_SHOWN:
        words += "; with the patch: right"
    python = f"Python {row.python.rpartition('.')[0]}"
    return f"{words} ({', '.join(filter(None, (row.peer, python, row.date)))})"


PART: Final = Document("docs/findings.md", plays, "plays")
