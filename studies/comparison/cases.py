"""The case for all methods: a defect, its fixed twin, and a scenario that shows it."""

import json
from dataclasses import dataclass
from functools import cache
from pathlib import Path

from syncverify.bugbank.entry import Entry
from syncverify.scenario.token import Reproducer, decode
from syncverify.subjects.subject import Subject

# Written by `syncverify bank --json`; a test replays each token.
FIGURES = Path(__file__).parents[1] / "results" / "bug-bank.json"


@dataclass(frozen=True, slots=True)
class Case:
    """One defect.

    Attributes:
        id: Id of the entry.
        section: Section of the bank.
        is_silent: Whether real hardware shows no error and no hang.
        defect: The defective subject.
        twin: The same subject without the defect.
        reproducer: The smallest scenario that shows the defect, and its schedule.
    """

    id: str
    section: str
    is_silent: bool
    defect: Subject
    twin: Subject
    reproducer: Reproducer


def case_of(entry: Entry) -> Case | None:
    """Return the case of an entry.

    Args:
        entry: Entry of the bank.

    Returns:
        The case; None for an entry without a token in the figures of the bank.
    """
    token = _tokens().get(entry.name)
    if token is None:
        return None
    return Case(
        id=entry.name,
        section=entry.family,
        is_silent=entry.silent,
        defect=entry.defect(),
        twin=entry.fixed(),
        reproducer=decode(token),
    )


@cache
def _tokens() -> dict[str, str]:
    rows = json.loads(FIGURES.read_text(encoding="utf-8"))["entries"]
    return {row["id"]: row["caught"]["token"] for row in rows if row["caught"]}
