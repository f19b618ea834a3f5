"""Gradients that are reduced over a wrong group."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

import torch

from syncverify.judge.whole_step.causes import ReducedOver, StepMistake
from syncverify.judge.whole_step.differences import ComparedValue, piece
from syncverify.judge.whole_step.factors import (
    RELATIVE,
    axis_sets,
    common_factor,
    factor_of,
)
from syncverify.judge.whole_step.known import Known
from syncverify.judge.whole_step.mixtures import usable, weights_of

# The part that each rank adds to the gradient of a whole parameter.
Contributions = Sequence[torch.Tensor]


def wrong_group(found: ComparedValue, known: Known) -> StepMistake | None:
    """Return the axes over which a shard was reduced, if wrong axes give its values.

    An expert's gradient on a rank has the tokens of some ranks before it is reduced: those that
    send tokens to it. So we also try which axes the gradient has summed already.
    """
    contributions = _contributions(found, known)
    if contributions is None:
        return None
    for summed in (frozenset[str](), *_within(known, known.split_axes)):
        right = known.split_axes - summed
        locals_ = _locals(found, known, contributions, summed)
        for axes in axis_sets(known.layout):
            if axes == right:
                continue
            factor = _common_factor(found, known, locals_, axes)
            if factor is not None:
                return ReducedOver(axes, right, factor)
    return None


def _within(known: Known, axes: frozenset[str]) -> Iterator[frozenset[str]]:
    return (each for each in axis_sets(known.layout) if each <= axes)


def _contributions(found: ComparedValue, known: Known) -> Contributions | None:
    parts = usable(known.parts)
    if len(parts) < 2 or len(parts) < len(known.parts):
        return None
    weights = weights_of([found], parts, known, right=True)
    if weights is None or any(found.name not in each for each in parts):
        return None
    return [parts[index][found.name] * weights[index] for index in known.part_of]


def _locals(
    found: ComparedValue,
    known: Known,
    contributions: Contributions,
    summed: frozenset[str],
) -> Mapping[int, torch.Tensor]:
    """Return each rank's gradient before its reduction."""
    return {
        rank: piece(
            found.name,
            torch.stack(
                [contributions[each] for each in known.layout.group(rank, summed)]
            ).sum(0),
            layout=known.layout,
            rank=rank,
            own=known.own,
            got=value,
        )
        for rank, value in found.got.items()
    }


def _common_factor(
    found: ComparedValue,
    known: Known,
    locals_: Mapping[int, torch.Tensor],
    axes: frozenset[str],
) -> float | None:
    """Return the factor by which all ranks have the sum over a group; None for none."""
    factors = list[float | None]()
    for rank, value in found.got.items():
        group = known.layout.group(rank, axes)
        if not {*group} <= {*locals_}:  # other ranks leave the parameter to its owner
            return None
        members = [locals_[each] for each in group]
        if any(each.shape != members[0].shape for each in members):
            return None
        summed = torch.stack(members).sum(0)
        factors.append(factor_of(value, summed, slack_of_base=found.slack))
        if factors[-1] is None:
            return None
    return common_factor(factors, RELATIVE + found.relative_slack)
