"""The conformance table, and the scenarios behind its cells, from stored observations."""

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from typing import Final

from studies.documents import Document, table
from studies.pages.conformance_columns import COLUMNS, Cell, Observed, observed_columns
from studies.releases.marks import marked
from syncverify.report.observed import EXPLAINED
from syncverify.scenario.feature_table import OPTIONAL

_GROUPS: Final[Mapping[str, tuple[str, ...]]] = {
    "Parameters and meshes": (
        "mesh", "placement", "on_mesh", "shape", "dtype", "listed", "memory_format",
    ),
    "Use in the forward": ("used", "use"),
    "Backward": ("backward",),
    "Steps": ("event", "update"),
    "Streams and order": ("launch", "readiness", "synchronizers", "replicas"),
    "Modules": ("module",),
}  # fmt: skip
# Of the README: columns and rows, each with its title there.
_FRONT_COLUMNS: Final = {
    "synchronizer": "ours",
    "ddp": "DDP",
    "replicate": "`replicate`",
    "fsdp2": "FSDP2",
    "d9d": "d9d",
    "megatron": "Megatron",
    "deepspeed-zero1": "ZeRO-1",
}
_FRONT_ROWS: Final = {
    "used=never": "a parameter that no rank uses",
    "used=not_on_odd_ranks": "a parameter that some ranks use",
    "event=unfreeze": "a parameter that is trained later",
    "event=missing_backward": "a backward fewer than agreed",
    "event=extra_backward": "a backward more than agreed",
    "event=zero_before_wait": "a step that is thrown away",
    "use=checkpointed_reentrant": "a reentrant checkpoint",
    "backward=create_graph": "`create_graph=True`",
}
_MARKS: Final = {"right": "ok", "not tried": "-"}


def page() -> str:
    """Return the tables of the page."""
    columns = [*observed_columns()]
    parts = [*_overview(columns), ""]
    for title, topics in _GROUPS.items():
        parts += [f"## {title}", "", *_table(topics, columns), ""]
    return "\n".join(parts)


def _overview(columns: list[Observed]) -> Iterator[str]:
    words = ("ok", "refused", *EXPLAINED, "-")
    head = ("synchronizer", "version", "played on", "Python", "backend", "scenarios")
    yield from table((*head, *words), (_row(each, words) for each in columns))
    most = max(cell.num_scenarios for each in columns for cell in each.stored)
    yield (
        f"\nSeed 0, up to 4 ranks, at most {most} scenarios of each feature. `reduce_scatter`, "
        "`comm_hook` and `keep_none` are modes of our synchronizer, in "
        "`studies/stand_ins/modes.py`. `ddp-static-graph` is played with one backward a step, "
        "since plain steps of several fail; see [findings](findings.md)."
    )
    yield from _absent(columns)


def _row(each: Observed, words: Sequence[str]) -> Iterator[object]:
    cells = each.cells.values()
    counts = Counter(_MARKS.get(cell.word, cell.word) for cell in cells)
    counts["-"] += len(OPTIONAL) - len(cells)
    yield f"`{each.column.name}`"
    yield _version(each)
    yield max(cell.date for cell in cells)
    yield from (each.stored[0].python, each.column.backend)
    yield sum(cell.num_scenarios for cell in cells)
    yield from (counts[word] for word in words)


def _absent(columns: list[Observed]) -> Iterator[str]:
    present = [each.column for each in columns]
    names = [f"`{each.name}`" for each in COLUMNS if each not in present]
    if names:
        yield (
            f"\nNot played yet: {', '.join(names)}. `make conformance` plays each column whose "
            "package is installed, and leaves a column out that takes too long."
        )


def _version(column: Observed) -> str:
    package, (version, installed_torch) = column.column.package, column.releases
    torch = f"torch {marked('seen torch', installed_torch)}"
    if package == "torch":
        return torch
    played = marked(f"seen {package}", version) if package else version
    return f"{package or 'this repository'} {played}, {torch}"


def _table(topics: tuple[str, ...], columns: list[Observed]) -> Iterator[str]:
    by_column = {each.column.name: each.cells for each in columns}
    features = [str(feature) for feature in OPTIONAL if feature.topic in topics]
    return table(
        ("feature", *by_column),
        (
            (f"`{each}`", *(_mark(cells.get(each)) for cells in by_column.values()))
            for each in features
        ),
    )


def _mark(cell: Cell | None) -> str:
    word = "not tried" if cell is None else cell.word
    return f"**{word}**" if word in EXPLAINED else _MARKS.get(word, word)


def front_table() -> str:
    """Return the table of the README: some features of some synchronizers."""
    columns = {each.column.name: each.cells for each in observed_columns()}
    marks = {**_MARKS, "wrong": "**wrong**"}
    words = {
        (name, feature): marks.get(cell.word, cell.word)
        for name, cells in columns.items()
        for feature, cell in cells.items()
    }
    rows = (
        (title, *(words.get((name, feature), "-") for name in _FRONT_COLUMNS))
        for feature, title in _FRONT_ROWS.items()
    )
    return "\n".join(table(("", *_FRONT_COLUMNS.values()), rows))


def counts() -> str:
    """Return the size of the whole table."""
    columns = [*observed_columns()]
    return f"{len(OPTIONAL)} features of {len(columns)} synchronizers"


PAGES: Final = (
    Document("docs/conformance.md", page, "table"),
    Document("README.md", front_table, "conformance"),
    Document("README.md", counts, "size of the table"),
)
