"""The part of docs/in-d9d.md that the command writes."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from studies.documents import Document, days, table
from studies.in_d9d.suite import EDITS
from studies.rows import RESULTS, RowFile

TRAINER: Final = "trainer"
SUITE: Final = "d9d's tests"


@dataclass(frozen=True, slots=True, kw_only=True)
class Row:
    """The outcome of a layout of the trainer, or of a test of d9d.

    Attributes:
        part: `TRAINER` or `SUITE`.
        name: Name of the layout or of the test.
        date: Day of the play.
        d9d: Version of d9d.
        torch: Version of torch.
        python: Version of Python.
        outcome: `passed`, or another word of pytest; for a layout `ended` or `error`.
        ranks: Number of processes.
        compared_with: What the gradients had to equal, bit by bit.
        gradients: Number that was compared, over all steps and ranks.
        wrong: Number that differ, with our synchronizer.
        wrong_of_d9d: Number that differ, with d9d's own.
    """

    part: str
    name: str
    date: str
    d9d: str
    torch: str
    python: str
    outcome: str
    ranks: int = 0
    compared_with: str = ""
    gradients: int = 0
    wrong: int = 0
    wrong_of_d9d: int = 0


ROWS: Final = RowFile(RESULTS / "in_d9d.jsonl", Row, ("part", "name"))


def section() -> str:
    """Return the stored result, in Markdown."""
    rows = ROWS.read()
    first, *_ = rows
    versions = f"d9d {first.d9d}, torch {first.torch}, Python {first.python}"
    trainer = _trainer([row for row in rows if row.part == TRAINER])
    tests = _tests([row for row in rows if row.part == SUITE])
    played = f"Played {days(rows)} with {versions}, in processes of gloo on a CPU."
    return "\n".join([played, "", *trainer, "", *tests])


def _trainer(rows: Sequence[Row]) -> list[str]:
    keys = ("name", "ranks", "compared_with", "gradients", "wrong", "wrong_of_d9d")
    heads = ["layout", *(each.replace("_", " ") for each in keys[1:-1])]
    cells = ([getattr(row, key) for key in keys] for row in rows)
    return [*table([*heads, "wrong of d9d's"], cells)]


def _tests(rows: Sequence[Row]) -> list[str]:
    passed = sum(row.outcome == "passed" for row in rows)
    failed = [
        f"- `{row.name}`: {row.outcome}" for row in rows if row.outcome != "passed"
    ]
    summary = (
        f"{passed} of d9d's {len(rows)} tests of its synchronizer pass with our class. "
        f"{len(EDITS)} edits were made, where ours differs by design:"
    )
    return [summary, "", *(f"- {edit.reason}" for edit in EDITS), *failed]


PART: Final = Document("docs/in-d9d.md", section, "results")
