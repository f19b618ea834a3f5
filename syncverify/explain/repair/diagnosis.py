"""All that is known of a violation beside its property: lines, values, a witness, a fix."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from syncverify.explain.repair.deciding_lines import deciding_lines
from syncverify.explain.repair.fix_search import find_fix
from syncverify.explain.repair.larger_scenarios import with_fewer_readings, with_witness
from syncverify.explain.repair.left_out import left_out
from syncverify.explain.repair.left_over import left_over
from syncverify.explain.repair.one_fix import diagnosed_by_fix
from syncverify.explain.witness.acts import acts_of
from syncverify.explain.witness.witness_search import find_witness
from syncverify.judge.cause import is_exception
from syncverify.judge.evidence import Ended
from syncverify.judge.violation import Violation
from syncverify.playing.choice import AnyBackend
from syncverify.playing.sim import SimBackend
from syncverify.processes.owner_link import Found, tell_owner
from syncverify.search.found_violation import FoundViolation
from syncverify.search.isolation import is_reported
from syncverify.subjects.subject import Subject


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

    def diagnose(entry: FoundViolation) -> FoundViolation:
        return diagnosed(_shown(entry, subject, backend, max_ranks), subject, backend)

    if not isinstance(backend, SimBackend):
        return [*map(diagnose, entries)]
    return diagnosed_by_fix(entries, diagnose, subject, backend)


def _shown(
    entry: FoundViolation, subject: Subject, backend: AnyBackend, max_ranks: int
) -> FoundViolation:
    """Return a violation in a scenario that shows the harm of a race, or one mistake alone."""
    if not isinstance(backend, SimBackend):
        return entry
    if entry.violation.evidence.unordered is None:
        return with_fewer_readings(entry, subject, backend, max_ranks)
    return with_witness(entry, subject, backend)


def diagnosed(
    entry: FoundViolation, subject: Subject, backend: AnyBackend
) -> FoundViolation:
    """Return the violation with its lines and a fix, and a witness if it is about order.

    The witness is a legal order with a wrong gradient. Only `sim` can play a chosen order,
    and a changed subject.
    """
    entry = replace(entry, violation=_with_argument(entry.violation, subject))
    if not isinstance(backend, SimBackend):
        return entry
    entry = replace(entry, left_over=left_over(entry, subject, backend))
    played = (entry.violation, entry.scenario, subject, backend, entry.schedule)
    entry = replace(
        entry,
        witness=entry.witness or find_witness(*played),
        acts=acts_of(*played),
        left_out=left_out(entry, subject, backend),
        fix=find_fix(entry, subject, backend),
    )
    is_surely_left = all(each.is_grown for each in entry.left_over)
    if entry.fix is not None and not (entry.fix.sets_back or is_surely_left):
        # Another line mends the step: a flag that is left over may be meant to stay.
        entry = replace(entry, left_over=())
    if entry.fix or entry.left_out or entry.left_over:
        return entry
    return replace(entry, deciders=deciding_lines(entry, subject, backend))


def _with_argument(violation: Violation, subject: Subject) -> Violation:
    """Note the name of the subject's argument for groups, if it raised: the error may name it."""
    evidence = violation.evidence
    if not (is_exception(violation.cause) and isinstance(evidence, Ended)):
        return violation
    named = replace(evidence, groups=subject.groups_argument)
    return replace(violation, evidence=named)
