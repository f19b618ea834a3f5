"""The page of ten defects of ten kinds, each with the diagnosis that a user reads.

Run `python -m pages.gallery` to write it. The scenarios are those of the bank's results.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Final

from syncverify.bugbank.catalogue import entry_of
from syncverify.bugbank.entry import Entry
from syncverify.one_play import play
from syncverify.report.text import violation_text
from syncverify.scenario.token import decode

ROOT: Final = Path(__file__).parents[2]
PAGE: Final = ROOT / "docs" / "gallery.md"
_FIGURES: Final = ROOT / "studies" / "results" / "bug-bank.json"
# One defect of each kind, from numbers over calls to memory.
SHOWN: Final = {
    "A wrong factor": "avg-divides-by-numel",
    "Ranks left out": "dp-group-ignores-sequence-parallel",
    "A sum that is rounded": "low-precision-accumulator",
    "A micro-batch that is lost": "accumulator-reset-each-backward",
    "A reduction that comes too early": "sync-first-instead-of-last",
    "A bucket that is never sent": "last-bucket-not-flushed",
    "Collectives that do not match": "set-iteration-order",
    "A hang": "cross-group-collective-order",
    "A race": "final-join-missing",
    "Memory that is freed too early": "missing-record-stream",
}
_START: Final = """\
# Gallery

Ten defects of ten kinds, from the [bug bank](bug-bank.md). Each was reported in a public project;
the bank has it as a small module, with a twin that is right. Below each is the diagnosis of the
smallest scenario, as `syncverify run` prints it, and the line that replays it.
"""


def page() -> str:
    """Return the text of the page."""
    rows = json.loads(_FIGURES.read_text(encoding="utf-8"))["entries"]
    tokens = {row["id"]: row["caught"]["token"] for row in rows if row["caught"]}
    parts = [
        "\n".join(_part(kind, entry_of(entry_id), tokens[entry_id]))
        for kind, entry_id in SHOWN.items()
    ]
    return "\n".join([_START, *parts])


def _part(kind: str, entry: Entry, token: str) -> Iterator[str]:
    project, _, number = entry.source.partition("#")
    link = f"https://github.com/{project}/issues/{number}"
    yield f"## {kind}\n"
    yield f"{entry.mechanism} `{entry.id}`, reported in [{entry.source}]({link}).\n"
    yield f"```text\n{_diagnosis(entry, token)}\n```\n"


def _diagnosis(entry: Entry, token: str) -> str:
    """Play an entry's smallest scenario, and return the text of its violation."""
    reproducer = decode(token)
    defect = entry.subject
    path = f"{defect.__module__}:{defect.__qualname__}"
    played = play(
        reproducer.scenario,
        path,
        contract=entry.defect().capabilities,
        schedule=reproducer.schedule,
    )
    identity = (reproducer.property, reproducer.cause)
    (found,) = (v for v in played.violations if v.violation.identity == identity)
    return violation_text(found, subject=path, backend=played.backend)


if __name__ == "__main__":
    PAGE.write_text(page(), encoding="utf-8")
