"""The order in which one defect violates properties: each causes some of the later ones.

Ranks that issue other collectives than their peers wait for ever, so gradients stay as they
are, so replicas differ. Four properties are violated then, by one defect.
"""

from __future__ import annotations

import functools
from collections.abc import Mapping

from syncverify.judge.cause import VAGUE_CAUSES
from syncverify.judge.properties.accumulation import (
    accumulation_is_local_until_reduced,
)
from syncverify.judge.properties.collectives import each_bucket_reduced_once_per_step
from syncverify.judge.properties.judgement import Check
from syncverify.judge.properties.launch_order import launch_order_agrees
from syncverify.judge.properties.lifecycle import (
    every_rank_finishes,
    every_wait_completes,
    unbind_restores_parameters,
    zero_grad_clears,
)
from syncverify.judge.properties.matching import collectives_match_across_ranks
from syncverify.judge.properties.ordering import (
    bucket_is_exclusive_while_reducing,
    memory_outlives_its_streams,
    reduce_reads_after_accumulation,
    wait_orders_reads_after_reduce,
    zero_grad_waits_for_reduce,
)
from syncverify.judge.properties.streams import stream_context_is_restored
from syncverify.judge.properties.values import (
    gradient_equals_reference,
    gradient_is_within_rounding,
    replicas_agree,
    unreduced_stay_local,
)
from syncverify.judge.signs import Circumstance, Clues, Meeting, Signs
from syncverify.judge.violation import Violation

# Property and cause of a violation.
Identity = tuple[str, str]

_VALUES = (
    gradient_equals_reference,
    gradient_is_within_rounding,
    unreduced_stay_local,
)
_ORDER = (
    reduce_reads_after_accumulation,
    bucket_is_exclusive_while_reducing,
    wait_orders_reads_after_reduce,
    memory_outlives_its_streams,
)
# What a property's violation may cause directly; consequences of consequences follow. A
# property that is nowhere on the right, such as `unbind_restores_parameters`, is never a
# consequence.
_CAUSES: dict[Check, tuple[Check, ...]] = {
    stream_context_is_restored: (*_ORDER, zero_grad_waits_for_reduce),
    zero_grad_waits_for_reduce: (zero_grad_clears,),
    zero_grad_clears: (accumulation_is_local_until_reduced, *_VALUES),
    accumulation_is_local_until_reduced: (
        reduce_reads_after_accumulation,
        bucket_is_exclusive_while_reducing,
        collectives_match_across_ranks,
        each_bucket_reduced_once_per_step,
        *_VALUES,
    ),
    **dict.fromkeys(_ORDER, (every_rank_finishes, *_VALUES)),
    collectives_match_across_ranks: (
        launch_order_agrees,
        every_rank_finishes,
        every_wait_completes,
        *_VALUES,
    ),
    launch_order_agrees: (every_wait_completes,),
    every_rank_finishes: (every_wait_completes, *_VALUES),
    every_wait_completes: (each_bucket_reduced_once_per_step, *_VALUES),
    **dict.fromkeys(_VALUES, (replicas_agree,)),
}
# Likewise within one property, where most causes are defects of their own.
_CAUSES_WITHIN: dict[Identity, tuple[str, ...]] = {
    (unbind_restores_parameters.__name__, "hook_left"): (
        "collective_after_unbind",
        "backward_not_plain",
    ),
}
# Whatever runs first, a sum has its factor, its dtype and its shape.
_OF_ANY_ORDER = frozenset({"scaled", "wrong_dtype", "wrong_shape"})
# Numbers that zero_grad() leaves are added to. A sum that nobody sends, or that comes into
# other memory than `.grad`, is another mistake.
_OF_MISSING_SUMS = frozenset({"not_reduced", "result_dropped", "view_lost"})
_ORDER_NAMES = frozenset(
    check.__name__
    for check in (*_ORDER, zero_grad_waits_for_reduce, stream_context_is_restored)
)
_VALUE_NAMES = frozenset(check.__name__ for check in _VALUES)
# These say why ranks disagree, and come before other forms of the same property. A wrong group
# also mixes groups in a bucket, and uneven parts of mixed groups move the ends of buckets.
_PROVEN_DISAGREEMENTS = (
    (collectives_match_across_ranks.__name__, "foreign_contribution"),
    (collectives_match_across_ranks.__name__, "groups_mixed"),
    (collectives_match_across_ranks.__name__, "buckets_differ"),
)
# Ranks disagree about the sequence of their collectives. The scenario decides whether two of
# them meet in one collective, wait for each other, or only might.
_DISAGREEMENTS = frozenset(
    {
        (every_wait_completes.__name__, "deadlock"),
        (every_wait_completes.__name__, "step_bound"),
        (collectives_match_across_ranks.__name__, "collective_mismatch"),
        (collectives_match_across_ranks.__name__, "collective_missing"),
        (collectives_match_across_ranks.__name__, "bucket_mismatch"),
        *_PROVEN_DISAGREEMENTS,
        (launch_order_agrees.__name__, "deadlock_hazard"),
    }
)
# Causes that explain what occurs under some circumstance alone; see Note [When it is wrong].
_SHOWN = {
    "hook_left": Circumstance.AFTER_REBINDING,
    "buffer_left": Circumstance.AFTER_REBINDING,
    "not_reset": Circumstance.AFTER_RIGHT_STEP,
    "hook_too_early": Circumstance.IN_TENSOR_HOOK,
    "collective_mismatch": Circumstance.OTHER_CONTENTS,
    "bucket_mismatch": Circumstance.OTHER_CONTENTS,
    "buckets_differ": Circumstance.OTHER_CONTENTS,
    "groups_mixed": Circumstance.OTHER_CONTENTS,
}
# What is left when no other property of order fits; see Note [One disorder, one property].
_FALLBACK = "accumulated_unordered"
_NO_CLUES = Clues()
AllClues = Mapping[Identity, Clues]


def may_cause(one: Identity, other: Identity) -> bool:
    """Tell whether the first violation may be the cause of the second, in one run."""
    if one[0] == other[0]:
        return other[1] in _CAUSES_WITHIN.get(one, ())
    if one[0] in _ORDER_NAMES and other[1] in _OF_ANY_ORDER:
        return False
    if one[0] == zero_grad_clears.__name__ and other[1] in _OF_MISSING_SUMS:
        return False
    return other[0] in consequences_of(one[0])


@functools.cache
def consequences_of(name: str) -> frozenset[str]:
    """Return the names of all properties that a violation of a property may violate."""
    direct = {
        following.__name__
        for check, follows in _CAUSES.items()
        if check.__name__ == name
        for following in follows
    }
    return frozenset(direct).union(*map(consequences_of, direct))


def clues_of(violation: Violation) -> Clues:
    """Return the clues of a violation; a disagreement of ranks shows its source lines."""
    own = violation.clues
    if violation.cause in _SHOWN:
        own |= Clues(frozenset({_SHOWN[violation.cause]}))
    if violation.identity not in _DISAGREEMENTS:
        return own
    lines = violation.evidence.named_lines
    return own | Clues(frozenset(Meeting(each.path, each.number) for each in lines))


def other_forms(
    ranked: list[Identity], clues: AllClues | None = None
) -> dict[Identity, Identity]:
    """Return the identities that are other forms of an identity, and that one for each.

    Two properties with the same cause are violated by one mistake. A vague cause gives way
    to a precise one of the same property, or of another one about values. Disagreements of
    ranks about the collectives of the same source line are one. A violation whose every
    finding another one explains by its clues is a form of that one.

    Args:
        ranked: Identities without repetition, the more important one first.
        clues: The clues of all violations of each identity; None for none.
    """
    known = clues or {}
    forms = _by_lines(ranked, known)
    for find in (functools.partial(_explaining, clues=known), _better_form):
        for identity in reversed(ranked):  # of two equals the first one stays
            others = [one for one in ranked if _last(forms, one) != identity]
            better = None if identity in forms else find(identity, others)
            if better is not None:
                forms[identity] = better
    return {identity: _last(forms, identity) for identity in forms}


def _by_lines(ranked: list[Identity], clues: AllClues) -> dict[Identity, Identity]:
    """Return the identities that share a line with another one, directly or by others.

    The first of them counts, but one of its property that says why comes before it.
    """
    forms: dict[Identity, Identity] = {}
    groups: dict[Identity, Signs] = {}
    for identity in ranked:
        if identity not in _DISAGREEMENTS:
            continue
        shows = clues.get(identity, _NO_CLUES).shows
        own = frozenset(each for each in shows if not isinstance(each, Circumstance))
        touching = [first for first, known in groups.items() if known & own]
        leader, *others = _telling_first([*touching, identity])
        forms.update(dict.fromkeys(others, leader))
        groups[leader] = own.union(*(groups.pop(each) for each in touching))
    return forms


def _telling_first(identities: list[Identity]) -> list[Identity]:
    """Put the disagreement that says why before others of the first one's property."""
    names = list(dict.fromkeys(name for name, _ in identities))
    telling = {one: place for place, one in enumerate(_PROVEN_DISAGREEMENTS)}
    return sorted(
        identities,
        key=lambda one: (names.index(one[0]), telling.get(one, len(telling))),
    )


def _explaining(
    identity: Identity, others: list[Identity], *, clues: AllClues
) -> Identity | None:
    """Return the first identity that explains another one by its clues.

    What is left when no other property fits may have several causes, and explains nothing.
    """
    own = clues.get(identity, _NO_CLUES)
    known = {one: clues.get(one, _NO_CLUES) for one in others if one[1] != _FALLBACK}
    if identity[1] == _FALLBACK:
        together = Clues(frozenset().union(*(each.shows for each in known.values())))
        parts = [one for one, each in known.items() if each.explains_some(own)]
        return next(iter(parts), None) if together.explain(own) else None
    return next((one for one, each in known.items() if each.explain(own)), None)


def _better_form(identity: Identity, others: list[Identity]) -> Identity | None:
    name, cause = identity
    if cause in VAGUE_CAUSES:
        precise = [one for one in others if one[1] not in VAGUE_CAUSES]
        same = [one for one in precise if one[0] == name]
        values = [one for one in precise if {one[0], name} <= _VALUE_NAMES]
        if same or values:
            return (same or values)[0]
    return next((one for one in others if one[1] == cause), None)


def _last(forms: dict[Identity, Identity], identity: Identity) -> Identity:
    while identity in forms:
        identity = forms[identity]
    return identity
