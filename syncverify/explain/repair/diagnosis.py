"""All that is known of a violation beside its property: lines, values, a witness, a fix.

Note [One fix, one mistake]
    A wrong group is a sum over too few ranks in one scenario and over too many in the next, and
    a missing wait leaves two kinds of work without an order. No property shows that these are
    one mistake. A change of the source with which each of the scenarios is right shows it. If
    there are two mistakes, the fix of one leaves the other's scenario wrong.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace

from syncverify.explain.case import Case
from syncverify.explain.repair.fix_search import find_fix
from syncverify.explain.repair.game import Game
from syncverify.explain.repair.left_out import left_out
from syncverify.explain.repair.left_over import left_over
from syncverify.explain.repair.other_scenarios import with_fewer_readings, with_witness
from syncverify.explain.repair.ran_lines import acts_of, deciding_lines
from syncverify.explain.repair.source_edit import Edit
from syncverify.explain.witness.witness_search import find_witness
from syncverify.judge.cause import is_exception
from syncverify.judge.evidence import Ended
from syncverify.playing.choice import AnyBackend
from syncverify.playing.sim import SimBackend
from syncverify.processes.owner_link import Found, tell_owner
from syncverify.search.found_violation import FoundViolation, RelatedViolation
from syncverify.search.isolation import is_reported
from syncverify.subjects.subject import Subject
from syncverify.trace.run import ENDED_FROM_OUTSIDE


def all_diagnosed(
    entries: Sequence[FoundViolation],
    subject: Subject,
    backend: AnyBackend,
    max_ranks: int,
) -> list[FoundViolation]:
    """Return the violations with all that is known of them, one for each mistake."""
    if not is_reported():
        return [*entries]
    if entries:
        tell_owner(Found)
    if not isinstance(backend, SimBackend):
        return [diagnosed(each, subject, backend) for each in entries]

    def diagnose(entry: FoundViolation) -> FoundViolation:
        # In a scenario that shows the harm of a race, or one mistake alone.
        if entry.violation.evidence.unordered is None:
            entry = with_fewer_readings(Case(entry, subject, backend), max_ranks)
        else:
            entry = with_witness(Case(entry, subject, backend))
        return diagnosed(entry, subject, backend)

    return diagnosed_by_fix(entries, diagnose, subject, backend)


def diagnosed_by_fix(
    entries: Iterable[FoundViolation],
    diagnose: Callable[[FoundViolation], FoundViolation],
    subject: Subject,
    backend: SimBackend,
) -> list[FoundViolation]:
    """Diagnose violations, and list each with another one whose fix mends it, in their order."""
    reported = list[FoundViolation]()
    for entry in entries:
        for place, known in enumerate(reported):
            if _is_mended(entry, known, subject, backend):
                reported[place] = _with(known, entry)
                break
        else:
            new = diagnose(entry)
            for each in [*reported]:
                if _is_mended(each, new, subject, backend):
                    reported.remove(each)
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


def diagnosed(
    entry: FoundViolation, subject: Subject, backend: AnyBackend
) -> FoundViolation:
    """Return the violation with its lines and a fix, and a witness if it is about order.

    The witness is a legal order with a wrong gradient. Only `sim` can play a chosen order,
    and a changed subject.
    """
    evidence = entry.violation.evidence
    if is_exception(entry.violation.cause) and isinstance(evidence, Ended):
        # The error may name the subject's argument for groups.
        evidence = replace(evidence, groups=subject.groups_argument)
        entry = replace(entry, violation=replace(entry.violation, evidence=evidence))
    if not isinstance(backend, SimBackend):
        return entry
    entry = replace(entry, left_over=left_over(Case(entry, subject, backend)))
    case = Case(entry, subject, backend)
    entry = replace(
        entry,
        witness=entry.witness or find_witness(case),
        acts=acts_of(case),
        left_out=left_out(case),
        fix=find_fix(case),
    )
    is_surely_left = all(each.is_grown for each in entry.left_over)
    if entry.fix is not None and not (entry.fix.sets_back or is_surely_left):
        # Another line mends the step: a flag that is left over may be meant to stay.
        entry = replace(entry, left_over=())
    if entry.fix or entry.left_out or entry.left_over:
        return entry
    return replace(entry, deciders=deciding_lines(case))
