"""The order in which one defect violates properties: each causes some of the later ones.

Ranks whose collectives differ from those of their peers wait for ever, so gradients stay as they
are, so replicas differ. Four properties are violated then, by one defect.
"""

import functools
from collections.abc import Mapping
from typing import Final

from syncverify.judge.causes import CAUSES, VAGUE_CAUSES
from syncverify.judge.evidence import Evidence
from syncverify.judge.properties.launch_order import launch_order_agrees
from syncverify.judge.properties.lifecycle import every_wait_completes
from syncverify.judge.properties.matching import collectives_match_across_ranks
from syncverify.judge.properties.ordering import FALLBACK
from syncverify.judge.properties.registry import ALL_PROPERTIES
from syncverify.judge.violation import (
    Circumstance,
    Clues,
    Identity,
    Meeting,
    Sign,
    Signs,
)

_PROPERTIES = {each.name: each for each in ALL_PROPERTIES}
_VALUE_NAMES = frozenset(each.name for each in ALL_PROPERTIES if each.is_about_values)
_MATCHING = collectives_match_across_ranks.__name__
# Ranks disagree about the sequence of their collectives. The scenario decides whether two of
# them meet in one collective, wait for each other, or only might. Those with a smaller number
# say better why ranks disagree, and come before other forms of the same property: a wrong group
# also mixes groups in a bucket, and uneven parts of mixed groups move the ends of buckets.
_DISAGREEMENTS: Final[Mapping[Identity, int]] = {
    (_MATCHING, "groups_differ"): 0,
    (_MATCHING, "foreign_contribution"): 0,
    (_MATCHING, "groups_mixed"): 1,
    (_MATCHING, "buckets_differ"): 2,
    (_MATCHING, "collective_mismatch"): 3,
    (_MATCHING, "collective_missing"): 3,
    (_MATCHING, "bucket_mismatch"): 3,
    (every_wait_completes.__name__, "deadlock"): 3,
    (every_wait_completes.__name__, "step_bound"): 3,
    (launch_order_agrees.__name__, "deadlock_hazard"): 3,
}
AllClues = Mapping[Identity, Clues]


def may_cause(one: Identity, other: Identity) -> bool:
    """Tell whether the first violation may be the cause of the second, in one run."""
    if one[0] == other[0]:
        return one[1] in CAUSES and other[1] in CAUSES[one[1]].leads_to
    entry = _PROPERTIES.get(one[0])
    if entry is None or other[1] in entry.never_gives:
        return False
    return other[0] in consequences_of(one[0])


@functools.cache
def consequences_of(name: str) -> frozenset[str]:
    """Return the names of all properties that a violation of a property may violate."""
    direct = {each.name for each in ALL_PROPERTIES if name in each.follows}
    if name in _PROPERTIES:
        direct |= {*_PROPERTIES[name].leads_to}
    return frozenset(direct).union(*map(consequences_of, direct))


def shown_by(identity: Identity, evidence: Evidence) -> Clues:
    """Return what a violation shows by its identity, beside the clues of its findings.

    A cause may show a circumstance, and a disagreement of ranks shows its source lines.
    """
    mistake, signs = CAUSES.get(identity[1]), set[Sign]()
    if mistake is not None and mistake.shows is not None:
        signs.add(mistake.shows)
    if identity in _DISAGREEMENTS:
        signs |= {Meeting(each.path, each.number) for each in evidence.named_lines}
    return Clues(frozenset(signs))


def other_forms(
    ranked: list[Identity], clues: AllClues | None = None
) -> dict[Identity, Identity]:
    """Return the identities that are other forms of an identity, and that one for each.

    Two properties with the same cause are violated by one mistake. A vague cause gives way
    to a precise one of the same property, or of another one about values. Disagreements of
    ranks about the collectives of the same source line are one. A violation whose every
    finding another one explains by its clues is a form of that one.

    The more important identities come first; `clues` has those of all violations of each identity.
    """
    known = {one: (clues or {}).get(one, Clues()) for one in ranked}
    forms = _by_lines(ranked, known)
    for find in (functools.partial(_explaining, clues=known), _better_form):
        for identity in reversed(ranked):  # of two equals the first one stays
            others = [one for one in ranked if last_form(forms, one) != identity]
            better = None if identity in forms else find(identity, others)
            if better is not None:
                forms[identity] = better
    return {identity: last_form(forms, identity) for identity in forms}


def _by_lines(ranked: list[Identity], clues: AllClues) -> dict[Identity, Identity]:
    """Return the identities that share a line with another one, directly or by others.

    The first of them counts, but one of its property that says why comes before it.
    """
    forms: dict[Identity, Identity] = {}
    groups: dict[Identity, Signs] = {}
    for identity in ranked:
        if identity not in _DISAGREEMENTS:
            continue
        shows = clues[identity].shows
        own = frozenset(each for each in shows if not isinstance(each, Circumstance))
        touching = [first for first, known in groups.items() if known & own]
        # The disagreement that says why comes before others of the first one's property.
        names = [*dict.fromkeys(name for name, _ in (*touching, identity))]
        leader, *others = sorted(
            [*touching, identity],
            key=lambda one: (names.index(one[0]), _DISAGREEMENTS[one]),
        )
        forms.update(dict.fromkeys(others, leader))
        groups[leader] = own.union(*(groups.pop(each) for each in touching))
    return forms


def _explaining(
    identity: Identity, others: list[Identity], *, clues: AllClues
) -> Identity | None:
    """Return the first identity that explains another one by its clues.

    What is left when no other property fits may have several causes, and explains nothing.
    """
    own, is_left = clues[identity], identity[1] == FALLBACK
    shown = {one: clues[one].shows for one in others if one[1] != FALLBACK}
    if is_left and not Clues(frozenset().union(*shown.values())).explain(own):
        return None
    fits = any if is_left else all  # findings, of which others may have other causes
    explaining = (
        one
        for one, signs in shown.items()
        if own.explained_by and fits(signs & each for each in own.explained_by)
    )
    return next(explaining, None)


def _better_form(identity: Identity, others: list[Identity]) -> Identity | None:
    name, cause = identity
    same_cause = [one for one in others if one[1] == cause]
    if cause not in VAGUE_CAUSES:
        return next(iter(same_cause), None)
    precise = [one for one in others if one[1] not in VAGUE_CAUSES]
    same = [one for one in precise if one[0] == name]
    values = [one for one in precise if {one[0], name} <= _VALUE_NAMES]
    return next(iter((*same, *values, *same_cause)), None)


def last_form(forms: Mapping[Identity, Identity], identity: Identity) -> Identity:
    """Return what explains an identity, and is not explained itself."""
    while identity in forms:
        identity = forms[identity]
    return identity
