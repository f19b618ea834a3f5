"""The stored results of peers, and their table in docs/findings.md."""

from typing import Final

from studies.documents import Document, table
from studies.peers.roster import PEERS
from studies.releases.marks import marked
from studies.rows import RESULTS, RowFile
from studies.searches import SearchRow

STORED: Final = RowFile(RESULTS / "peers.jsonl", SearchRow, ("subject",))
_COLUMNS: Final = (
    *("peer", "release", "played on", "Python", "backend"),
    *("scenarios", "properties", "violations"),
)


def stored() -> list[SearchRow]:
    """Return the stored results, in the order of the roster."""
    read = {row.subject: row for row in STORED.read()}
    return [read[name] for name in PEERS if name in read]


def runs() -> str:
    """Return the table of the stored results, and the peers that are not played yet."""
    rows = stored()
    played = {row.subject for row in rows}
    absent = [f"`{name}`" for name in PEERS if name not in played]
    lines = [*table(_COLUMNS, map(_cells, rows))]
    if absent:
        lines.append(f"\nNot played yet: {', '.join(absent)}.")
    return "\n".join(lines)


def _cells(row: SearchRow) -> list[object]:
    found = ", ".join(f"`{each}`" for each in row.violations) or "0"
    cells = [f"`{row.subject}`", _release(row), row.date, row.python, row.backend]
    return [*cells, row.examples, row.num_properties, found]


def _release(row: SearchRow) -> str:
    torch = f"torch {marked('seen torch', row.torch)}"
    package = PEERS[row.subject].package
    if package == "torch":
        return torch
    return f"{package} {marked(f'seen {package}', row.release)}, {torch}"


PART: Final = Document("docs/findings.md", runs, "runs of peers")
