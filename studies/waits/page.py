"""The table of the waits of built-in subjects, from the stored results."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from typing import Final

from studies.documents import Document, table
from studies.waits.playing import ROWS
from studies.waits.results import ANSWERED, POINTS, Answered, Point
from syncverify.waits.answers import NEED_WORDS

_HEAD: Final = (
    *("subjects", "date", "scenarios", *NEED_WORDS),
    *("never ran", "kept references", "check"),
)


def page() -> str:
    """Return the table of the stored rows."""
    stored, points = {each.row: each for each in ANSWERED.read()}, POINTS.read()
    rows = (
        _cells(stored[name], [each for each in points if each.row == name])
        for name in ROWS
        if name in stored
    )
    return "\n".join(table(_HEAD, rows))


def _cells(answered: Answered, points: Sequence[Point]) -> Iterator[str]:
    yield ", ".join(f"`{name}`" for name in ROWS[answered.row].subjects)
    yield answered.date
    left_out = f", {answered.wrong:,} left out" if answered.wrong else ""
    yield f"{answered.in_scope:,} of the scope, {answered.drawn:,} drawn{left_out}"
    ran = [each for each in points if each.scenarios]
    calls = Counter(each.word for each in ran if not each.is_reference)
    kept = Counter(each.word for each in ran if each.is_reference)
    yield from (str(calls[word]) for word in NEED_WORDS)
    yield str(len(points) - len(ran))
    yield ", ".join(f"{kept[word]} {word}" for word in NEED_WORDS if kept[word])
    yield _checked(answered) if {"superfluous"} & {*calls, *kept} else "nothing to do"


def _checked(answered: Answered) -> str:
    return (
        f"{len(answered.check_broken)} wrong in {answered.check_scenarios:,} scenarios, "
        f"{answered.check_plays:,} plays"
    )


PART: Final = Document("docs/how-we-know.md", page, "waits of built-in subjects")
