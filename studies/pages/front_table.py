"""The conformance table of the README: some features of some synchronizers."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Final

from studies.pages.conformance_columns import observed_columns

README: Final = Path(__file__).parents[2] / "README.md"
_BEGIN: Final = (
    "<!-- Written by `python -m studies.pages.conformance`; a test compares. -->\n"
)
_BLOCK: Final = re.compile(f"(?<={re.escape(_BEGIN)})(?:\\|.*\n)*")
_COUNTS: Final = re.compile(r"has \d+ features of \d+ synchronizers")
_COLUMNS: Final = {
    "synchronizer": "ours",
    "ddp": "DDP",
    "replicate": "`replicate`",
    "fsdp2": "FSDP2",
    "d9d": "d9d",
    "megatron": "Megatron",
    "deepspeed-zero1": "ZeRO-1",
}
_ROWS: Final = {
    "used=never": "a parameter that no rank uses",
    "used=not_on_odd_ranks": "a parameter that some ranks use",
    "event=unfreeze": "a parameter that is trained later",
    "event=missing_backward": "a backward fewer than agreed",
    "event=extra_backward": "a backward more than agreed",
    "event=zero_before_wait": "a step that is thrown away",
    "use=checkpointed_reentrant": "a reentrant checkpoint",
    "backward=create_graph": "`create_graph=True`",
}
_MARKS: Final = {"right": "ok", "wrong": "**wrong**", "not tried": "-"}


def front_table() -> str:
    """Return the table in Markdown."""
    cells = {
        each.column.name: {cell.feature: cell.word for cell in each.cells}
        for each in observed_columns()
    }
    lines = [
        f"| | {' | '.join(_COLUMNS.values())} |",
        "|---|" + "---|" * len(_COLUMNS),
    ]
    for feature, name in _ROWS.items():
        words = [cells[column][feature] for column in _COLUMNS]
        marks = [_MARKS.get(word, word) for word in words]
        lines.append(f"| {name} | {' | '.join(marks)} |")
    return "\n".join([*lines, ""])


def readme() -> str:
    """Return the README with the table and the counts of today."""
    text = _BLOCK.sub(lambda _: front_table(), README.read_text(encoding="utf-8"))
    columns = [*observed_columns()]
    counts = f"has {len(columns[0].cells)} features of {len(columns)} synchronizers"
    return _COUNTS.sub(counts, text)
