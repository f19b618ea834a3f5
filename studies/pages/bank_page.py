"""Write the page about the bug bank from its entries and figures: `make catalogue`."""

import json
from collections.abc import Iterator
from statistics import median
from typing import Any, Final

from studies.documents import RESULTS, Document, table
from syncverify.bugbank.catalogue import FAMILIES, entries
from syncverify.bugbank.entry import Entry
from syncverify.plain_text import noun_of

FIGURES: Final = RESULTS / "bug-bank.json"  # of `syncverify bank --json`
_COLUMNS: Final = (
    *("id, source", "mechanism", "trigger", "silent"),
    *("caught by", "contract", "scenarios", "shrunk to"),
)


def page() -> str:
    """Return the figures and the entries of the page."""
    played = {row["id"]: row for row in figures()["entries"]}
    parts = [*_summary(played), ""]
    for family in FAMILIES:
        own = [entry for entry in entries() if entry.family == family]
        parts += [*_section(family, own, played), ""]
    return "\n".join(parts)


def figures() -> Any:
    """Return the figures that `syncverify bank --json` wrote."""
    return json.loads(FIGURES.read_text())


def _summary(played: dict[str, Any]) -> Iterator[str]:
    rows = [*played.values()]
    caught = [row for row in rows if row["caught"]]
    right = sum(row["is_cause_right"] for row in rows)
    silent = sum(row["alarm"] is None for row in rows)
    sizes = [row["caught"] for row in caught]
    plain = sum(size["contract"] == "plain" for size in sizes)
    yield (
        f"Figures: on `{rows[0]['backend']}`, seed {figures()['seed']}, at most "
        f"{figures()['examples']} scenarios for a defect and at least "
        f"{figures()['twin_examples']} for a twin. Drawn scenarios change between versions, and so does the number of scenarios up "
        "to a defect."
    )
    yield ""
    yield "| | |"
    yield "|---|---|"
    yield f"| caught | {len(caught)} of {len(rows)} |"
    yield f"| caught in plain training steps | {plain} of {len(rows)} |"
    yield f"| cause right | {right} of {len(rows)} |"
    diagnosed = [row for row in rows if row.get("is_line_shown") is not None]
    if diagnosed:
        shown = sum(row["is_line_shown"] for row in diagnosed)
        fixed = sum(bool(row["fix"]) for row in diagnosed)
        yield f"| the report shows a guilty line | {shown} of {len(diagnosed)} |"
        yield f"| it has a fix as code that was played | {fixed} of {len(diagnosed)} |"
    yield (
        f"| median to detection | {median(row['examples'] for row in caught):g} "
        f"scenarios, {median(row['seconds'] for row in caught):.1f} s |"
    )
    yield (
        f"| median after shrinking | {_median_of(sizes, 'rank')}, "
        f"{_median_of(sizes, 'parameter')}, {_median_of(sizes, 'step')} |"
    )
    yield f"| twins silent | {silent} of {len(rows)} |"


def _median_of(sizes: list[dict[str, Any]], noun: str) -> str:
    found = median(size[f"{noun}s"] for size in sizes)
    return f"{found:g} {noun_of(found, noun)}"


def _section(title: str, own: list[Entry], played: dict[str, Any]) -> Iterator[str]:
    yield f"## {title}"
    yield ""
    yield from table(_COLUMNS, (_cells(each, played.get(each.name)) for each in own))


def _cells(entry: Entry, row: dict[str, Any] | None) -> list[str]:
    name = f"`{entry.name}`<br>{_link(entry.source)}"
    silent = "yes" if entry.silent else "no"
    return [name, entry.mechanism, entry.trigger, silent, *_found(row)]


def _found(row: dict[str, Any] | None) -> list[str]:
    if row is None:
        return ["not measured", "", "", ""]
    caught = row["caught"]
    if not caught:
        return ["missed", "", str(row["examples"]), ""]
    identity = f"`{caught['property']}` ({caught['cause']})"
    if not row["is_cause_right"]:
        identity += ", not the cause"
    size = f"{caught['ranks']} x {caught['parameters']} x {caught['steps']}"
    return [identity, f"`{caught['contract']}`", str(row["examples"]), size]


def _link(source: str) -> str:
    project, _, number = source.partition("#")
    return f"[{source}](https://github.com/{project}/issues/{number})"


PAGE: Final = Document("docs/bug-bank.md", page, "entries")
