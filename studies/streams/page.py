"""The table of the compared verdicts, from the stored results."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import asdict
from typing import Final

from studies.documents import RESULTS, Document, table
from studies.streams.playing import RIGHT, Compared, defects

_FILE: Final = RESULTS / "streams.json"


def read() -> dict[str, Compared]:
    """Return the stored result of each subject."""
    text = _FILE.read_text("utf-8") if _FILE.exists() else "{}"
    return {name: Compared(**row) for name, row in json.loads(text).items()}


def write(stored: Mapping[str, Compared]) -> None:
    """Store the results."""
    rows = {name: asdict(row) for name, row in sorted(stored.items())}
    _FILE.write_text(f"{json.dumps(rows, indent=1)}\n", encoding="utf-8")


def page() -> str:
    """Return the table of what is stored, and say what is not."""
    stored = read()
    # A new entry of the bank may displace a defect; its stored result stays.
    names = dict.fromkeys((*RIGHT, *defects(), *stored))
    head = ("subject", "scenarios", "with a violation", "another verdict")
    rows = [
        (f"`{name}`", row.num_scenarios, row.num_wrong, len(row.different))
        for name in names
        if (row := stored.get(name)) is not None
    ]
    left = f"{len(stored)} of {len(names)} subjects are stored."
    return "\n".join(["", left, "", *table(head, rows), ""])


PART: Final = Document("docs/scripts.md", page, "verdicts of sim and streams")
