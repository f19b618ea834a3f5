"""Write the page about the bug bank from its entries and figures: `make catalogue`."""

from collections.abc import Iterator, Sequence
from statistics import median
from typing import Final

from studies.bank_rows import BANK, BUDGET, BankRow
from studies.documents import Document, days, table
from syncverify.plain_text import noun_of
from syncverify.subjects.bugbank.catalogue import FAMILIES, entries
from syncverify.subjects.bugbank.entry import Entry

_COLUMNS: Final = (
    *("id, source", "mechanism", "trigger", "silent"),
    *("caught by", "contract", "scenarios", "shrunk to"),
)


def page() -> str:
    """Return the figures and the entries of the page."""
    rows = BANK.read()
    played = {row.id: row for row in rows}
    parts = [*_summary(rows), ""]
    for section in FAMILIES:
        own = [entry for entry in entries() if entry.family == section]
        parts += [*_section(section, own, played), ""]
    return "\n".join(parts)


def _summary(rows: Sequence[BankRow]) -> Iterator[str]:
    caught = [row for row in rows if row.property]
    yield (
        f"Figures: on `sim`, seed {BUDGET.seed}, at most {BUDGET.examples} scenarios for a defect and "
        f"at least {min(row.twin_examples for row in rows)} for a twin, played {days(rows)}. "
        f"Drawn scenarios change between versions, and so does the number of scenarios up "
        "to a defect."
    )
    plain = sum(row.contract == "plain" for row in caught)
    right = sum(row.is_cause_right for row in rows)
    seconds = median(row.seconds for row in caught)
    sizes = ", ".join(
        _median_of(caught, noun) for noun in ("rank", "parameter", "step")
    )
    figures = {
        "caught": f"{len(caught)} of {len(rows)}",
        "caught in plain training steps": f"{plain} of {len(rows)}",
        "cause right": f"{right} of {len(rows)}",
        "median to detection": f"{median(row.examples for row in caught):g} scenarios, {seconds:.1f} s",
        "median after shrinking": sizes,
        "twins silent": f"{sum(not row.alarm for row in rows)} of {len(rows)}",
    }
    yield from ("", *table(("", ""), figures.items()))


def _median_of(caught: Sequence[BankRow], noun: str) -> str:
    found = median(getattr(row, f"{noun}s") for row in caught)
    return f"{found:g} {noun_of(found, noun)}"


def _section(title: str, own: list[Entry], played: dict[str, BankRow]) -> Iterator[str]:
    yield f"## {title}"
    yield ""
    yield from table(_COLUMNS, (_cells(each, played.get(each.name)) for each in own))


def _cells(entry: Entry, row: BankRow | None) -> list[str]:
    name = f"`{entry.name}`<br>{_link(entry.source)}"
    silent = "yes" if entry.silent else "no"
    return [name, entry.mechanism, entry.trigger, silent, *_found(row)]


def _found(row: BankRow | None) -> list[str]:
    if row is None:
        return ["not measured", "", "", ""]
    if not row.property:
        return ["missed", "", str(row.examples), ""]
    identity = f"`{row.property}` ({row.cause})"
    if not row.is_cause_right:
        identity += ", not the cause"
    size = f"{row.ranks} x {row.parameters} x {row.steps}"
    return [identity, f"`{row.contract}`", str(row.examples), size]


def _link(source: str) -> str:
    project, _, number = source.partition("#")
    return f"[{source}](https://github.com/{project}/issues/{number})"


PAGE: Final = Document("docs/bug-bank.md", page, "entries")
