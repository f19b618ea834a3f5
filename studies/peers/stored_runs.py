"""The stored results of peers, and their table in docs/findings.md."""

import json
import re
from collections.abc import Iterator
from dataclasses import asdict
from pathlib import Path
from typing import Final

from studies.peers.peer_result import PeerResult
from studies.peers.roster import PEERS
from studies.releases.marks import marked

_ROOT: Final = Path(__file__).parents[2]
PAGE: Final = _ROOT / "docs" / "findings.md"
STORED: Final = _ROOT / "studies" / "results" / "peers.json"
_BEGIN: Final = (
    "<!-- Written by `python -m studies.peers --store`; a test compares. -->\n"
)
_BLOCK: Final = re.compile(f"(?<={re.escape(_BEGIN)}).*?(?=\n## )", re.DOTALL)


def stored() -> list[PeerResult]:
    """Return the stored results, in the order of the roster."""
    if not STORED.exists():
        return []
    rows = json.loads(STORED.read_text(encoding="utf-8"))
    lists = ("violations", "tokens")
    read = {
        row["subject"]: PeerResult(**row | {name: tuple(row[name]) for name in lists})
        for row in rows
    }
    return [read[name] for name in PEERS if name in read]


def store(rows: list[PeerResult]) -> None:
    """Store results, each in the place of an earlier one of the same peer."""
    known = {row.subject: row for row in [*stored(), *rows]}
    ordered = [asdict(known[name]) for name in PEERS if name in known]
    STORED.write_text(f"{json.dumps(ordered, indent=1)}\n", encoding="utf-8")


def page() -> str:
    """Return the page of findings with the stored results."""
    table = "".join(f"{line}\n" for line in _table(stored()))
    return _BLOCK.sub(lambda _: table, PAGE.read_text(encoding="utf-8"), count=1)


def _table(rows: list[PeerResult]) -> Iterator[str]:
    yield "| peer | release | played on | Python | backend | scenarios | promises checked | violations |"
    yield "|---|---|---|---|---|---|---|---|"
    for row in rows:
        found = ", ".join(f"`{each}`" for each in row.violations) or "0"
        cells = [f"`{row.subject}`", _release(row), row.date, row.python, row.backend]
        cells += [str(row.examples), str(row.num_promises), found]
        yield f"| {' | '.join(cells)} |"
    absent = [
        f"`{name}`" for name in PEERS if name not in {row.subject for row in rows}
    ]
    if absent:
        yield f"\nNot played with these releases yet: {', '.join(absent)}."


def _release(row: PeerResult) -> str:
    torch = f"torch {marked('seen torch', row.torch)}"
    package = PEERS[row.subject].package
    if package == "torch":
        return torch
    return f"{package} {marked(f'seen {package}', row.release)}, {torch}"
