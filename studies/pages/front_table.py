"""The conformance table of the README: some features of some synchronizers."""

from __future__ import annotations

from typing import Final

from studies.documents import Document, table
from studies.pages.conformance_columns import observed_columns
from syncverify.scenario.feature_table import OPTIONAL

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
        each.column.name: {name: cell.word for name, cell in each.cells.items()}
        for each in observed_columns()
    }
    rows = (
        (name, *(_mark(cells[column].get(feature, "not tried")) for column in _COLUMNS))
        for feature, name in _ROWS.items()
    )
    return "\n".join(table(("", *_COLUMNS.values()), rows))


def _mark(word: str) -> str:
    return _MARKS.get(word, word)


def counts() -> str:
    """Return the size of the whole table."""
    columns = [*observed_columns()]
    return f"{len(OPTIONAL)} features of {len(columns)} synchronizers"


TABLE: Final = Document("README.md", front_table, "conformance")
COUNTS: Final = Document("README.md", counts, "size of the table")
