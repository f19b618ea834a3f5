"""Wrong gradients that have the right ones of other parameters."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

from syncverify.judge.whole_step import causes
from syncverify.judge.whole_step.differences import ComparedValue
from syncverify.judge.whole_step.factors import (
    RELATIVE,
    axes_with,
    common_factor,
    factor_of,
)
from syncverify.judge.whole_step.mesh_play import Known
from syncverify.judge.whole_step.mixtures import Explained, are_few, piece_of


def mixed_up(found: Sequence[ComparedValue], known: Known) -> Iterator[Explained]:
    """Yield that gradients are at wrong parameters, with all gradients that this explains.

    A parameter whose gradient another one has may be left with zeros.
    """
    slacks = {each.name: each.slack for each in found}
    sums = {each: _sum_with_another(each, slacks, known) for each in found}
    moved = {name for listed in sums.values() for name, _ in listed}
    explained = [
        each for each in found if sums[each] or (each.name in moved and each.is_zero)
    ]
    if explained:
        yield causes.MixedUp(tuple((e.name, sums[e]) for e in explained)), explained


def _sum_with_another(
    found: ComparedValue, slacks: Mapping[str, float], known: Known
) -> causes.SumOfRight:
    """Return the right gradients of which one is another parameter's; none if several fit."""
    own = known.whole.get(found.name)
    first_names = known.play.reference.values.first_names
    fitting = [
        (*([(found.name, kept)] if kept else []), (name, factor))
        for name, right in known.whole.items()
        if own is not None and right is not None and right.shape == own.shape
        if first_names.get(name, name) == name != found.name
        for kept in (0.0, 1.0)
        if (factor := _factor(found, name, kept, slacks.get(name, found.slack), known))
        if factor == 1 or axes_with(known.layout, factor)
    ]
    return fitting[0] if len(fitting) == 1 and not are_few([found], 2) else ()


def _factor(
    found: ComparedValue, name: str, kept: float, slack: float, known: Known
) -> float | None:
    """Return the factor of another gradient beside the own one on all wrong ranks; None for none.

    The slack is that of the other one. A multiple of the own gradient tells nothing.
    """
    factors = list[float | None]()
    for rank in found.wrong_ranks:
        got, own = found.got[rank], found.expected[rank]
        other = piece_of(known.whole[name], found, rank, known)
        if got is None or got.shape != own.shape:
            return None
        factor = factor_of(got - kept * own, other, kept * found.slack, slack)
        if factor is None or factor_of(other, own, slack, found.slack) is not None:
            return None
        factors.append(factor)
    return common_factor(factors, RELATIVE + found.relative_slack)
