"""The mistakes between right gradients and those that the optimizer reads."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

import torch

from syncverify.judge.whole_step.causes import (
    NotClipped,
    NotUpdated,
    OtherCoefficient,
    StepMistake,
)
from syncverify.judge.whole_step.differences import ComparedValue
from syncverify.judge.whole_step.factors import multiple_of
from syncverify.judge.whole_step.gradient_causes import gradient_causes, grouped
from syncverify.judge.whole_step.mesh_play import Known, Squares
from syncverify.judge.whole_step.mixtures import Explained
from syncverify.judge.whole_step.norm_causes import wrong_squares

# Clipping adds this to the norm, and users' clipping adds something as small, or nothing.
_ADDED_TO_NORM = 1e-6
# Relative error of a norm that is computed from a coefficient, because of `_ADDED_TO_NORM`.
_RELATIVE_OF_NORM = 1e-5
# The gradients before clipping, by rank.
RankGradients = Mapping[int, torch.Tensor | None]
_Pair = tuple[ComparedValue, StepMistake]


def coefficient_of(norm: float, clip: float) -> float:
    """Return the number by which torch's clipping multiplies gradients."""
    return min(1.0, clip / (norm + _ADDED_TO_NORM))


def clip_causes(
    found: Sequence[ComparedValue],
    before: Mapping[str, RankGradients],
    squares: Squares,
    clip: float | None,
    known: Known,
    *,
    is_seen: bool,
) -> list[Explained]:
    """Return the mistakes behind wrong gradients that the optimizer reads.

    Args:
        found: The wrong gradients; each occurs once in the result.
        before: Gradients before clipping, by name and rank.
        squares: Squares of the gradients that the ranks have: after clipping that is not seen.
        clip: Largest norm; None clips nothing.
        known: Facts with which mistakes are looked for.
        is_seen: Whether clipping was seen.
    """
    lacking, clipped = list[_Pair](), list[_Pair]()
    others = list[ComparedValue]()
    for each in found:
        own = before.get(each.name, {})
        if _is_unread(each, own):
            lacking.append((each, NotUpdated(tuple(each.wrong_ranks))))
        elif clip is not None and (cause := _clip_cause(each, own)) is not None:
            clipped.append((each, cause))
        else:
            others.append(each)
    explained = [
        (_with_norm(cause, listed, squares, clip, is_seen=is_seen), listed)
        for cause, listed in grouped(clipped)
    ]
    return [*grouped(lacking), *gradient_causes(others, known), *explained]


def _is_unread(found: ComparedValue, before: RankGradients) -> bool:
    """Tell whether the optimizer read no gradient on ranks that have one."""
    return all(
        found.got[rank] is None and before.get(rank) is not None
        for rank in found.wrong_ranks
    )


def _clip_cause(found: ComparedValue, before: RankGradients) -> StepMistake | None:
    """Return how a gradient is clipped wrongly; None if clipping multiplies it by no number."""
    slack = found.slack
    read = [each for each in found.wrong_ranks if found.got[each] is not None]
    if not read:
        return None
    expected = multiple_of(found.expected[read[0]], before.get(read[0]), slack)
    got = {each: multiple_of(found.got[each], before.get(each), slack) for each in read}
    real = {each: factor for each, factor in got.items() if factor is not None}
    if expected is None or len(real) < len(got):
        return None
    # A rank without a gradient leaves the parameter to its owner, and clips as that rank does.
    if len({*real.values()}) == 1:
        real = dict.fromkeys(found.wrong_ranks, real[read[0]])
    if {*real.values()} == {expected}:  # rounded digits hide the difference
        return None
    if expected != 1 and {*real.values()} == {1.0}:
        return NotClipped(expected)
    return OtherCoefficient(real, expected)


def _with_norm(
    cause: StepMistake,
    clipped: Sequence[ComparedValue],
    squares: Squares,
    clip: float | None,
    *,
    is_seen: bool,
) -> StepMistake:
    """Return a coefficient with the mistake in the norm that gives it."""
    if not isinstance(cause, OtherCoefficient) or clip is None:
        return cause
    coefficients = {
        rank: cause.coefficients.get(rank, cause.expected) for rank in squares.ranks
    }
    if any(not 0 < each < 1 for each in coefficients.values()):
        return cause
    norms = {rank: clip / each for rank, each in coefficients.items()}
    if not is_seen:
        squares = squares.multiplied(lambda rank, _: 1 / coefficients[rank])
    slack = _RELATIVE_OF_NORM + max(each.relative_slack for each in clipped)
    return replace(cause, norm=wrong_squares(norms, squares, slack))
