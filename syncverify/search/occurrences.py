"""The violations of all scenarios of a search, and the few defects that they are signs of.

Note [One defect, one violation]
~~~~~~~~~~~~~~~~~~~~~~~~~~~~~~~~
One defect violates several properties, together or in different scenarios. An identity is a
violation of its own if some run shows it without any identity that may be its cause
(`may_cause`). It is a consequence if every run shows it together with such a cause. Of several
identities of their own that are forms of one mistake (`other_forms`) the first by rank counts.
Consequences and forms are listed with the violation that explains them; they are not shrunk.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Self

from syncverify.judge.consequences import clues_of, may_cause, other_forms
from syncverify.judge.properties import ALL_PROPERTIES
from syncverify.judge.properties.lifecycle import zero_grad_clears
from syncverify.judge.signs import Clues
from syncverify.search.found_violation import FoundViolation, RelatedViolation
from syncverify.search.judge import Identity

_RANKING = [entry.name for entry in ALL_PROPERTIES]


def ranked(identities: Iterable[Identity]) -> list[Identity]:
    """Return identities in the order of `ALL_PROPERTIES`."""
    return sorted(identities, key=lambda identity: _RANKING.index(identity[0]))


@dataclass(slots=True)
class Occurrences:
    """The identities that runs showed.

    Attributes:
        first: The first violation of each identity.
        own: The first violation of each identity that a run showed without a cause.
        causes: By identity, how often a run showed it together with a cause, by that cause.
        clues: By identity, what all its violations show, and what explains each one that was
            met without a cause.
        joined: By identity, the one that explains it, as further runs have shown.
    """

    first: dict[Identity, FoundViolation] = field(default_factory=dict)
    own: dict[Identity, FoundViolation] = field(default_factory=dict)
    causes: dict[Identity, Counter[Identity]] = field(default_factory=dict)
    clues: dict[Identity, Clues] = field(default_factory=dict)
    joined: dict[Identity, Identity] = field(default_factory=dict)

    @classmethod
    def merged(cls, parts: Sequence[Self]) -> Self:
        """Return the occurrences of several searches as those of one."""
        whole = cls()
        for part in parts:
            whole.first = {**part.first, **whole.first}
            whole.own = {**part.own, **whole.own}
            whole.joined |= part.joined
            for identity, causes in part.causes.items():
                whole.causes.setdefault(identity, Counter()).update(causes)
            for identity, clues in part.clues.items():
                whole.clues[identity] = clues | whole.clues.get(identity, Clues())
        return whole

    def add(
        self, violations: Mapping[Identity, FoundViolation]
    ) -> list[FoundViolation]:
        """Note the violations of one run; return those that count and were not met before."""
        causes = {
            identity: [
                one for one in violations if _may_cause(violations, one, identity)
            ]
            for identity in ranked(violations)
        }
        new = [one for one in causes if not causes[one] and one not in self.own]
        for identity, entry in violations.items():
            self.first.setdefault(identity, entry)
            clues = clues_of(entry.violation)
            if causes[identity]:
                clues = replace(clues, explained_by=frozenset())
            self.clues[identity] = clues | self.clues.get(identity, Clues())
            counter = self.causes.setdefault(identity, Counter())
            counter.update(one for one in causes[identity] if not causes[one])
        self.own.update({identity: violations[identity] for identity in new})
        counting = set(self.counting())
        return [violations[identity] for identity in new if identity in counting]

    def note_while_shrinking(
        self, violations: Mapping[Identity, FoundViolation], shrunk: Identity
    ) -> None:
        """Note violations that no run of the search showed, beside the one that was shrunk.

        They are listed with that one: they were met in variants of its scenarios, and
        nothing was drawn to tell them apart.
        """
        for identity in ranked(set(violations) - set(self.first)):
            self.first[identity] = violations[identity]
            if any(may_cause(one, identity) for one in violations):
                self.causes[identity] = Counter([shrunk])
            else:
                self.own[identity] = violations[identity]
                self.joined[identity] = shrunk

    def counting(self) -> list[Identity]:
        """Return the identities that count as violations, in the order of a report."""
        forms = self.forms()
        return [one for one in ranked(self.own) if one not in forms]

    def related(self) -> dict[Identity, tuple[RelatedViolation, ...]]:
        """Return the violations that each counting one explains: consequences, then forms."""
        forms = self.forms()
        found: dict[Identity, list[RelatedViolation]] = {}
        for identity in ranked(self.first):
            if identity not in self.own:
                (cause, _), *_ = self.causes[identity].most_common(1)
                explains, is_consequence = forms.get(cause, cause), True
            elif identity in forms:
                explains, is_consequence = forms[identity], False
            else:
                continue
            related = RelatedViolation.of(
                self.first[identity].violation, is_consequence=is_consequence
            )
            found.setdefault(explains, []).append(related)
        return {
            identity: tuple(sorted(each, key=lambda one: not one.is_consequence))
            for identity, each in found.items()
        }

    def forms(self) -> dict[Identity, Identity]:
        """Return the identity that explains each form of another one.

        That one is no form itself: where two explain each other, one of them counts.
        """
        explained: dict[Identity, Identity] = {}
        for edges in (self.joined, other_forms(ranked(self.own), self.clues)):
            for form in reversed(ranked(edges)):
                root = _root(edges[form], explained)
                if form not in explained and root != form:
                    explained[form] = root
        return {form: _root(form, explained) for form in explained}


def _may_cause(
    violations: Mapping[Identity, FoundViolation], one: Identity, other: Identity
) -> bool:
    # No zero_grad() comes before step 0 is reduced: a wrong number there is another mistake.
    is_at_once = violations[other].violation.evidence.step == 0
    is_later = one[0] == zero_grad_clears.__name__ and other[0] != one[0]
    return may_cause(one, other) and not (is_at_once and is_later)


def _root(identity: Identity, explained: Mapping[Identity, Identity]) -> Identity:
    while identity in explained:
        identity = explained[identity]
    return identity
