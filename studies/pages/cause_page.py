"""Write the page of all causes that a violation may have: `make catalogue`."""

from collections.abc import Iterator
from typing import Final

from studies.documents import Document, table
from syncverify.judge.evidence import Evidence
from syncverify.judge.properties.registry import CAUSES
from syncverify.report.hints import certainty

HEAD = """\
# Causes

Written by `make catalogue` from the modules of properties, and from `syncverify/judge/cause.py` for
the causes that several properties have; a test compares. A violation has a property, which says what does not hold, and a cause, which says
what mistake was made. How sure a cause is stands beside it in a report:

- *certain*: the run shows it, for example by a call, a line or a missing wait.
- *likely*: the value of a gradient shows it, and no other known mistake gives that value.
- *one of several*: other mistakes give that value too; the report names them. A search
  prefers scenarios that leave one.
- *open*: the cause tells a place, and no reason.

The trace of a run may make a cause certain that is likely by its value. On simulated ranks, a
report also has a *fix* where one was found: a change of the subject's own source, with which
the scenario held every property when it was played, and other scenarios showed nothing new. A
fix need not be the one that the author would make.
"""
_COLUMNS: Final = ("cause", "the mistake", "by itself", "repair to try first")


def page() -> str:
    """Return the page."""
    return "\n".join([HEAD, *table(_COLUMNS, _rows()), ""])


def _rows() -> Iterator[tuple[str, ...]]:
    for cause, mistake in CAUSES.items():
        sure = certainty(cause, Evidence(is_proven=False)).partition(":")[0]
        sure = sure if sure in {"certain", "likely"} else "open"
        yield f"`{cause}`", mistake.meaning, sure, mistake.hint


PAGE: Final = Document("docs/reference/causes.md", page)
