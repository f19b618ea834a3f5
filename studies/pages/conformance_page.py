"""The conformance table, and the scenarios behind its cells, from stored observations."""

import re
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
        "mesh",
        "placement",
        "on_mesh",
        "shape",
        "dtype",
        "listed",
        "memory_format",
    ),
    "Use in the forward": ("used", "use"),
    "Backward": ("backward",),
    "Steps": ("event", "update"),
    "Streams and order": ("launch", "readiness", "synchronizers", "replicas"),
    "Modules": ("module",),
}
_MARKS: Final = {"right": "ok", "not tried": "-"}


def page() -> str:
    """Return the tables of the page."""
    columns = [*observed_columns()]
    parts = [*_overview(columns), ""]
    for title, topics in _GROUPS.items():
        parts += [f"## {title}", "", *_table(topics, columns), ""]
    return "\n".join([*parts, *_not_tried(columns)])


def scenarios_page() -> str:
    """Return a scenario for each cell that is neither right nor refused."""
    parts = list[str]()
    for column in observed_columns():
        if column.explained() or column.plain:
            parts += [f"## {column.column.name}", "", *_scenarios(column)]
    return "\n".join(parts)


def _overview(columns: list[Observed]) -> Iterator[str]:
    words = ("ok", "refused", *EXPLAINED, "-")
    head = ("synchronizer", "version", "played on", "Python", "backend", "scenarios")
    yield from table((*head, *words), (_row(each, words) for each in columns))
    yield from _sizes(columns)
    yield from _absent(columns)


def _row(each: Observed, words: Sequence[str]) -> Iterator[object]:
    counts = Counter(_MARKS.get(cell.word, cell.word) for cell in each.cells)
    yield f"`{each.column.name}`"
    yield from (_version(each), each.date, each.python, each.column.backend)
    yield sum(sum(cell.counts.values()) for cell in each.cells)
    yield from (counts[word] for word in words)


def _sizes(columns: list[Observed]) -> Iterator[str]:
    seeds = sorted({each.seed for each in columns})
    numbers = "; ".join(
        f"{number} for {names}" for number, names in _by_num_scenarios(columns)
    )
    yield (
        f"\nSeed {', '.join(map(str, seeds))}, up to 4 ranks. Scenarios of each feature: "
        f"{numbers}. `reduce_scatter`, `comm_hook` and `keep_none` are modes of our "
        "synchronizer, in `studies/stand_ins/modes.py`. `ddp-static-graph` is played with one "
        "backward a step, since plain steps of several fail; see [findings](findings.md)."
    )


def _absent(columns: list[Observed]) -> Iterator[str]:
    present = [each.column for each in columns]
    names = [f"`{each.name}`" for each in COLUMNS if each not in present]
    if names:
        yield (
            f"\nNot played yet: {', '.join(names)}. `make conformance` plays each column whose "
            "package is installed, and leaves a column out that takes too long."
        )


def _version(column: Observed) -> str:
    package = column.column.package
    torch = f"torch {marked('seen torch', column.torch)}"
    if package == "torch":
        return torch
    played = marked(f"seen {package}", column.version) if package else column.version
    return f"{package or 'this repository'} {played}, {torch}"


def _by_num_scenarios(columns: list[Observed]) -> Iterator[tuple[int, str]]:
    by_number = dict[int, list[str]]()
    for each in columns:
        by_number.setdefault(each.num_scenarios, []).append(f"`{each.column.name}`")
    most = max(by_number.values(), key=len)
    for number, names in by_number.items():
        yield (
            number,
            (
                "all others"
                if names is most and len(by_number) > 1
                else "all"
                if names is most
                else ", ".join(names)
            ),
        )


def _table(topics: tuple[str, ...], columns: list[Observed]) -> Iterator[str]:
    by_column = {
        each.column.name: {cell.feature: cell for cell in each.cells}
        for each in columns
    }
    features = [str(feature) for feature in OPTIONAL if feature.topic in topics]
    return table(
        ("feature", *by_column),
        (
            (
                f"`{each}`",
                *(_mark(name, of.get(each)) for name, of in by_column.items()),
            )
            for each in features
        ),
    )


def _mark(column: str, cell: Cell | None) -> str:
    if cell is None:
        return "-"
    if cell.word in EXPLAINED:
        link = _anchor(f"{column}: {cell.feature}")
        return f"[**{cell.word}**](reference/conformance.md#{link})"
    return _MARKS.get(cell.word, cell.word)


def _anchor(heading: str) -> str:
    """Return the anchor that GitHub and mkdocs make of a heading."""
    return re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-")


def _scenarios(column: Observed) -> Iterator[str]:
    for token, summary in column.plain.items():
        yield f"Plain steps: {summary}\n\n{_replay(column, token)}\n"
    for cell in column.explained():
        count = f"{cell.counts[cell.word]} of {sum(cell.counts.values())}"
        yield f"### {column.column.name}: {cell.feature}\n"
        yield f"{cell.word}, {count}: {cell.summary}\n\n{_replay(column, cell.token)}\n"


def _replay(column: Observed, token: str) -> str:
    own = column.column
    return f"    syncverify replay {token} {own.subject} --backend {own.backend}"


def _not_tried(columns: list[Observed]) -> Iterator[str]:
    by_reason = dict[str, dict[str, list[str]]]()
    for each in columns:
        for cell in each.cells:
            if cell.word == "not tried":
                of_column = by_reason.setdefault(cell.reason, {})
                of_column.setdefault(cell.feature, []).append(each.column.name)
    yield "## Not tried\n"
    for reason, features in by_reason.items():
        yield f"- {reason}: " + "; ".join(
            f"`{feature}`" + ("" if len(names) == len(columns) else _of(names))
            for feature, names in features.items()
        )
    yield ""


def _of(names: list[str]) -> str:
    return f" ({', '.join(names)})"


PAGE: Final = Document("docs/conformance.md", page, "table")
SCENARIOS_PAGE: Final = Document(
    "docs/reference/conformance.md", scenarios_page, "scenarios"
)
