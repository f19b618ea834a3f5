"""Violations that one fix mends are one mistake, however differently they show.

Note [One fix, one mistake]
    A wrong group is a sum over too few ranks in one scenario and over too many in the next, and
    a missing wait leaves two kinds of work without an order. No property shows that these are
    one mistake. A change of the source with which each of the scenarios is right shows it. If
    there are two mistakes, the fix of one leaves the other's scenario wrong.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import replace

from syncverify.explain.repair.game import Game
from syncverify.explain.repair.slow_runs import ENDED_FROM_OUTSIDE
from syncverify.explain.repair.source_edit import Edit
from syncverify.playing.sim import SimBackend
from syncverify.search.found_violation import FoundViolation, RelatedViolation
from syncverify.subjects.subject import Subject

_Diagnose = Callable[[FoundViolation], FoundViolation]


def diagnosed_by_fix(
    entries: Iterable[FoundViolation],
    diagnose: _Diagnose,
    subject: Subject,
    backend: SimBackend,
) -> list[FoundViolation]:
    """Diagnose violations, and list each with an earlier or later one whose fix mends it.

    See Note [One fix, one mistake].

    Args:
        entries: Violations in the order of a report.
        diagnose: Looks for the fix of a violation, among other things.
        subject: The synchronizer.
        backend: Plays the fixes.

    Returns:
        Violations in the order of a report, one for each mistake.
    """
    reported = list[FoundViolation]()
    for entry in entries:
        for place, known in enumerate(reported):
            if _is_mended(entry, known, subject, backend):
                reported[place] = _with(known, entry)
                break
        else:
            new = diagnose(entry)
            same = [
                each for each in reported if _is_mended(each, new, subject, backend)
            ]
            reported = [each for each in reported if each not in same]
            for each in same:
                new = _with(new, each)
            reported.append(new)
    return reported


def _is_mended(
    entry: FoundViolation, other: FoundViolation, subject: Subject, backend: SimBackend
) -> bool:
    """Tell whether the fix of another violation leaves nothing wrong where one shows."""
    change = other.fix.change if other.fix else None
    if not isinstance(change, Edit) or entry.violation.cause in ENDED_FROM_OUTSIDE:
        return False
    return Game(entry, subject, backend).mends(change)


def _with(entry: FoundViolation, other: FoundViolation) -> FoundViolation:
    """Return a violation that lists another one, and all that this one lists."""
    violation, lines = other.violation, other.violation.evidence.named_lines
    form = RelatedViolation(
        *violation.identity, violation.summary, is_consequence=False, lines=lines
    )
    related = dict.fromkeys((*entry.related, form, *other.related))
    ordered = sorted(related, key=lambda each: not each.is_consequence)
    return replace(entry, related=tuple(ordered))
