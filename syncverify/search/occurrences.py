"""The violations of all scenarios of a search, and the few defects that they are signs of.

Note [One defect, one violation]
~~~~~~~~~~~~~~~~~~~~~~~~~~~~~~~~
One defect violates several properties, together or in different scenarios. An identity is a
violation of its own if some run shows it without any identity that may be its cause
(`may_cause`) and is no consequence there. It is a consequence if every run shows it together
with such a cause. Of several
identities of their own that are forms of one mistake (`other_forms`) the first by rank counts.
Consequences and forms are listed with the violation that explains them; they are not shrunk.

Note [Complements]
~~~~~~~~~~~~~~~~~~
A bucket that waits for a wrong number of micro-batches is reduced early in long windows, and
never in short ones. Such violations have no event in common, and no scenario shows both. So
the scenario of one violation is played again with windows of other lengths. Where the violation
then goes, and the other one comes for the same parameter, the two are forms of one mistake. Of
two mistakes each would stay, or both would go.

If the rest of a bucket is lost, its parameters lack the contributions of some ranks, or of
all: a parameter alone tells. That is tried for these two alone, since a parameter alone lies in
another bucket, which may have another mistake.
"""

import contextlib
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import Self

from syncverify.judge.consequences import last_form, may_cause, other_forms, shown_by
from syncverify.judge.properties import ALL_PROPERTIES
from syncverify.judge.properties.lifecycle import zero_grad_clears
from syncverify.judge.properties.values import gradient_equals_reference
from syncverify.judge.violation import Clues
from syncverify.scenario.feature_table import PLAIN
from syncverify.scenario.features import features_outside
from syncverify.scenario.scenario import Scenario
from syncverify.search.budget import OutOfBudgetError
from syncverify.search.found_violation import FoundViolation, RelatedViolation
from syncverify.search.judge import Identity, Judge

_RANKING = [entry.name for entry in ALL_PROPERTIES]
_WRONG = gradient_equals_reference.__name__
_LOSSES = {(_WRONG, "not_reduced"), (_WRONG, "rank_contribution_missing")}
_MOST_MICRO_BATCHES_MORE = 4
# With more violations, the subject is far from right, and each one takes some runs.
_MOST_VIOLATIONS = 3


def ranked(identities: Iterable[Identity]) -> list[Identity]:
    """Return identities in the order of `ALL_PROPERTIES`."""
    return sorted(identities, key=lambda identity: _RANKING.index(identity[0]))


@dataclass(slots=True)
class Occurrences:
    """The identities that runs showed."""

    # The first violation of each identity, and the first one that a run showed without a cause.
    first: dict[Identity, FoundViolation] = field(default_factory=dict)
    own: dict[Identity, FoundViolation] = field(default_factory=dict)
    # How often a run showed an identity together with a cause, by that cause.
    causes: dict[Identity, Counter[Identity]] = field(default_factory=dict)
    # What all violations of an identity show, and what explains each one that was met without a
    # cause.
    clues: dict[Identity, Clues] = field(default_factory=dict)
    # The identity that explains another one, as further runs have shown.
    joined: dict[Identity, Identity] = field(default_factory=dict)

    def update(self, later: Self) -> None:
        """Take in the occurrences of a later search; of two violations the earlier one stays."""
        self.first = {**later.first, **self.first}
        self.own = {**later.own, **self.own}
        self.joined |= later.joined
        for identity, causes in later.causes.items():
            self.causes.setdefault(identity, Counter()).update(causes)
        for identity, clues in later.clues.items():
            self.clues[identity] = clues | self.clues.get(identity, Clues())

    def add(
        self, violations: Mapping[Identity, FoundViolation]
    ) -> list[FoundViolation]:
        """Note the violations of one run; return those that count and were not met before."""
        steps = {one: each.violation.evidence.step for one, each in violations.items()}
        causes = _own_causes(steps)
        new = [one for one in causes if not causes[one] and one not in self.own]
        for identity, entry in violations.items():
            self.first.setdefault(identity, entry)
            violation = entry.violation
            clues = violation.clues | shown_by(identity, violation.evidence)
            if causes[identity]:
                clues = replace(clues, explained_by=frozenset())
            self.clues[identity] = clues | self.clues.get(identity, Clues())
            self.causes.setdefault(identity, Counter()).update(causes[identity])
        self.own.update({identity: violations[identity] for identity in new})
        counting = self.reported() if new else ()
        return [violations[identity] for identity in new if identity in counting]

    def note_while_shrinking(
        self, violations: Mapping[Identity, FoundViolation], shrunk: Identity
    ) -> None:
        """Note violations that no run of the search showed, beside the one that was shrunk.

        They are listed with that one: they were met in variants of its scenarios, and
        nothing was drawn to tell them apart.
        """
        # No set: its order would change with the hash seed.
        for identity in ranked(one for one in violations if one not in self.first):
            self.first[identity] = violations[identity]
            if any(may_cause(one, identity) for one in violations):
                self.causes[identity] = Counter([shrunk])
            else:
                self.own[identity] = violations[identity]
                self.joined[identity] = shrunk

    def reported(self) -> dict[Identity, tuple[RelatedViolation, ...]]:
        """Return the identities that count as violations, in the order of a report.

        Each has the violations that it explains: consequences, then forms.
        """
        forms = _forms(ranked(self.own.keys()), self.clues, self.joined)
        explained = defaultdict[Identity, list[RelatedViolation]](list)
        for identity in ranked(self.first.keys()):
            is_consequence, cause = identity not in self.own, identity
            if is_consequence:
                ((cause, _),) = self.causes[identity].most_common(1)
            elif identity not in forms:
                continue
            one = self.first[identity].violation
            lines = one.evidence.named_lines
            related = RelatedViolation(*identity, one.summary, is_consequence, lines)
            explained[forms.get(cause, cause)].append(related)
        for each in explained.values():
            each.sort(key=lambda one: not one.is_consequence)
        counting = (one for one in ranked(self.own.keys()) if one not in forms)
        return {identity: tuple(explained[identity]) for identity in counting}


def _forms(
    own: list[Identity],
    clues: Mapping[Identity, Clues],
    joined: Mapping[Identity, Identity],
) -> dict[Identity, Identity]:
    """Return the identity that explains each form of another one.

    That one is no form itself: where two explain each other, one of them counts.
    """
    explained: dict[Identity, Identity] = {}
    for edges in (joined, other_forms(own, clues)):
        for form in reversed(ranked(edges)):
            root = last_form(explained, edges[form])
            if form not in explained and root != form:
                explained[form] = root
    return {form: last_form(explained, form) for form in explained}


def _own_causes(steps: Mapping[Identity, int | None]) -> dict[Identity, list[Identity]]:
    """Return by identity of one run, by rank, its causes that have no cause themselves.

    Causes of a cause are not always causes: a mistake of an order leads to an error, and an error
    to wrong numbers, but no order multiplies a number.
    """
    found: dict[Identity, list[Identity]] = {}

    def causes_of(identity: Identity) -> list[Identity]:
        if identity not in found:
            may_be = (one for one in steps if _may_cause(one, identity, steps))
            found[identity] = [one for one in may_be if not causes_of(one)]
        return found[identity]

    return {identity: causes_of(identity) for identity in ranked(steps)}


def _may_cause(
    one: Identity, other: Identity, steps: Mapping[Identity, int | None]
) -> bool:
    # No zero_grad() comes before step 0 is reduced: a wrong number there is another mistake.
    is_later = one[0] == zero_grad_clears.__name__ and other[0] != one[0]
    return may_cause(one, other) and not (steps[other] == 0 and is_later)


def join_complements(judge: Judge, met: Occurrences) -> None:
    """Note the violations that are forms of another one, as further runs show."""
    counting = [*met.reported()]
    if len(counting) > _MOST_VIOLATIONS or judge.budget.num_hangs:
        return
    judge.budget.num_slow_runs = 0
    with contextlib.suppress(OutOfBudgetError):
        for one in reversed(counting):
            others = [each for each in counting if each not in {one, *met.joined}]
            other = _complement(judge, met.own[one], others) if others else None
            if other is not None:
                first, second = sorted((one, other), key=counting.index)
                met.joined[second] = first


def _complement(
    judge: Judge, found: FoundViolation, others: list[Identity]
) -> Identity | None:
    """Return the violation that comes where a violation goes."""
    before = judge.judge_schedule(found.scenario, found.schedule).violations
    coming = [one for one in others if not _is_beside(found, before.get(one))]
    for scenario, candidates in _trials(judge, found, coming):
        violations = judge.judge_schedule(scenario, found.schedule).violations
        if found.violation.identity not in violations:
            for other in (one for one in candidates if one in violations):
                if _parameters(found) & _parameters(violations[other]):
                    return other
    return None


def _is_beside(found: FoundViolation, other: FoundViolation | None) -> bool:
    """Tell whether the scenario shows a violation of another property already."""
    # Of one property, the steps of a scenario may show both forms of a mistake.
    if other is None or other.violation.property == found.violation.property:
        return False
    return bool(_parameters(found) & _parameters(other))


def _trials(
    judge: Judge, found: FoundViolation, others: list[Identity]
) -> Iterator[tuple[Scenario, list[Identity]]]:
    """Yield scenarios of the contract, each with the violations that may come there."""
    whole = found.scenario
    losses = [one for one in others if {one, found.violation.identity} <= _LOSSES]
    trials = [(scenario, others) for scenario in _other_lengths(whole)]
    if losses and whole.module == PLAIN and len(whole.parameters) > 1:
        alone = [spec for spec in whole.parameters if spec.name in _parameters(found)]
        trials += [(replace(whole, parameters=(spec,)), losses) for spec in alone]
    for scenario, candidates in trials:
        if not features_outside(scenario, judge.subject.capabilities):
            yield scenario, candidates


def _parameters(found: FoundViolation) -> set[str]:
    return {*found.violation.parameters}


def _other_lengths(scenario: Scenario) -> Iterator[Scenario]:
    """Yield the scenario with another window in one step, and with all longer."""
    lengths = scenario.accumulations
    for step, known in enumerate(lengths):
        for length in range(1, known + _MOST_MICRO_BATCHES_MORE + 1):
            if length != known:
                others = (*lengths[:step], length, *lengths[step + 1 :])
                yield replace(scenario, accumulations=others)
    for more in range(1, _MOST_MICRO_BATCHES_MORE + 1):
        yield replace(scenario, accumulations=tuple(each + more for each in lengths))
