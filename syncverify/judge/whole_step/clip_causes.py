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
from syncverify.judge.whole_step.known import Known
from syncverify.judge.whole_step.mixtures import Explained
from syncverify.judge.whole_step.norm_causes import Squares, wrong_squares

# Clipping adds this to the norm, and users' clipping adds something as small, or nothing.
_ADDED_TO_NORM = 1e-6
# Relative error of a norm that is computed from a coefficient, because of `_ADDED_TO_NORM`.
_RELATIVE_OF_NORM = 1e-5
# The gradients before clipping, by rank.
RankGradients = Mapping[int, torch.Tensor | None]


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
        found: The wrong gradients.
        before: Gradients before clipping, by name and rank.
        squares: Squares of the gradients that the ranks have.
        clip: Largest norm; None clips nothing.
        known: Facts with which mistakes are looked for.
        is_seen: Whether clipping was seen; the squares are those after it otherwise.

    Returns:
        Mistakes with the gradients that they explain; each wrong gradient occurs once.
    """
    unread = [each for each in found if _is_unread(each, before.get(each.name, {}))]
    found = [each for each in found if not _is_unread(each, before.get(each.name, {}))]
    clipped, others = list[tuple[ComparedValue, StepMistake]](), list[ComparedValue]()
    for each in found:
        cause = None if clip is None else _clip_cause(each, before.get(each.name, {}))
        if cause is None:
            others.append(each)
        else:
            clipped.append((each, cause))
    explained = [
        (
            _with_norm(cause, squares, clip, _norm_slack(listed), is_seen=is_seen),
            listed,
        )
        for cause, listed in grouped(clipped)
    ]
    lacking = grouped((e, NotUpdated(tuple(e.wrong_ranks))) for e in unread)
    return [*lacking, *gradient_causes(others, known), *explained]


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


def _norm_slack(clipped: Sequence[ComparedValue]) -> float:
    """Return how exact a norm is that is found from clipped gradients."""
    slack = max((each.relative_slack for each in clipped), default=0.0)
    return _RELATIVE_OF_NORM + slack


def _with_norm(
    cause: StepMistake,
    squares: Squares,
    clip: float | None,
    slack: float,
    *,
    is_seen: bool,
) -> StepMistake:
    """Return a coefficient with the mistake in the norm that gives it."""
    if not isinstance(cause, OtherCoefficient) or clip is None:
        return cause
    coefficients = {
        rank: cause.coefficients.get(rank, cause.expected)
        for rank in range(squares.layout.num_ranks)
    }
    if any(not 0 < each < 1 for each in coefficients.values()):
        return cause
    norms = {rank: clip / each for rank, each in coefficients.items()}
    before = squares if is_seen else squares.divided(coefficients)
    return replace(cause, norm=wrong_squares(norms, before, slack))
