"""The smallest scenario that shows a defect of the bug bank, and its schedule."""

import json
from functools import cache

from studies.documents import RESULTS
from syncverify.bugbank.entry import Entry
from syncverify.scenario.token import Reproducer, decode


def reproducer_of(entry: Entry) -> Reproducer | None:
    """Return what `syncverify bank --json` found; None for an entry that it has not played."""
    token = _tokens().get(entry.id)
    return None if token is None else decode(token)


@cache
def _tokens() -> dict[str, str]:
    rows = json.loads((RESULTS / "bug-bank.json").read_text("utf-8"))["entries"]
    return {row["id"]: row["caught"]["token"] for row in rows if row["caught"]}
