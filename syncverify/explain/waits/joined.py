"""The answers for several subjects of the same code, joined by line."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from typing import Final

from syncverify.explain.waits.answers import Answer, NeedWord
from syncverify.trace.sync_points import SyncPoint

# A subject that needs a line decides; then one that does not know whether it does.
_PRECEDENCE: Final[dict[NeedWord, int]] = {
    "needed": 0,
    "undecided": 1,
    "superfluous": 2,
}


def joined(answers: Iterable[Answer]) -> tuple[Answer, ...]:
    """Return an answer for each point: from the subject that needs the point most.

    A line that a subject never ran has the answer of the other subjects.
    """
    by_point = dict[SyncPoint, Answer]()
    for answer in answers:
        known = by_point.get(answer.point)
        by_point[answer.point] = answer if known is None else _one(known, answer)
    ran = {_place(point) for point, each in by_point.items() if each.num_scenarios}
    found = [
        each
        for point, each in by_point.items()
        if each.num_scenarios or _place(point) not in ran
    ]
    return tuple(sorted(found, key=lambda one: one.point[::-1]))


def _place(point: SyncPoint) -> tuple[str, int]:
    return point.line.file, point.line.number


def _one(first: Answer, second: Answer) -> Answer:
    if not (first.num_scenarios and second.num_scenarios):
        return first if first.num_scenarios else second
    most, other = sorted((first, second), key=lambda one: _PRECEDENCE[one.word])
    return replace(
        most,
        num_scenarios=most.num_scenarios + other.num_scenarios,
        exposed_microseconds=max(most.exposed_microseconds, other.exposed_microseconds),
    )
