"""The mistakes that make wrong gradients, found by trying changes that would repair them."""

import itertools
import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from typing import Final

import torch

from syncverify.errors import UsageError
from syncverify.judge.whole_step import causes
from syncverify.judge.whole_step.copies import copy_cause
from syncverify.judge.whole_step.differences import ComparedValue, is_close
from syncverify.judge.whole_step.factors import (
    RELATIVE,
    axes_with,
    axis_sets,
    common_factor,
    factor_of,
    is_number,
    rounded,
)
from syncverify.judge.whole_step.mesh_play import Known, MeshPlay
from syncverify.judge.whole_step.mixtures import (
    Explained,
    mixed_up,
    mixtures,
    sum_of,
    usable,
    wrong_group,
)
from syncverify.judge.whole_step.values import NamedTensors

# Each guess of an added bias costs a forward and a backward of one rank.
_MAX_PLAYS: Final = 32


def gradient_causes(found: Sequence[ComparedValue], known: Known) -> list[Explained]:
    """Return the mistakes behind wrong gradients, each with the gradients that it explains.

    A small tensor fits many mistakes: one element is a multiple of any other. So the mistake
    that explains most gradients is taken first, and the simpler one of two.

    Each wrong gradient of the step occurs once.
    """
    tried, left = _tried(found, known), [*found]
    taken = list[Explained]()
    while left:
        kept = [(cause, [e for e in each if e in left]) for cause, each in tried]
        if not any(explained for _, explained in kept):
            break
        taken.append(max(kept, key=lambda pair: len(pair[1])))
        left = [each for each in left if each not in taken[-1][1]]
    return [*taken, *grouped((each, copy_cause(each, known.layout)) for each in left)]


def grouped(
    pairs: Iterable[tuple[ComparedValue, causes.StepMistake]],
) -> list[Explained]:
    """Return each mistake with all values that it explains."""
    by_cause = dict[causes.StepMistake, list[ComparedValue]]()
    for found, cause in pairs:
        by_cause.setdefault(cause, []).append(found)
    return [*by_cause.items()]


def _tried(found: Sequence[ComparedValue], known: Known) -> list[Explained]:
    """Return all mistakes that explain a gradient, from simple to complex."""
    tried = list[Explained]()
    for find in _FINDERS:
        pairs = [(each, find(each, known)) for each in found]
        explained = grouped((each, cause) for each, cause in pairs if cause is not None)
        tried += [each for each in explained if _proves(*each, known)]
    mixed = [*mixtures(found, known)]
    named = {each for _, explained in (*tried, *mixed) for each in explained}
    left = [each for each in found if each not in named or each.is_zero]
    mixed += mixed_up(left, known)
    # Where a part has no tokens, a factor explains a mean of means as well.
    has_empty_part = len(usable(known.parts)) < len(known.parts)
    return [*mixed, *tried] if has_empty_part else [*tried, *mixed]


def _proves(
    cause: causes.StepMistake, explained: Sequence[ComparedValue], known: Known
) -> bool:
    """Tell whether values prove a mistake: one element is a multiple of any other."""
    if any(value.numel() > 1 for each in explained for value in each.expected.values()):
        return True
    match cause:
        case causes.LacksSum(_, factor) | causes.ReducedOver(_, _, factor):
            return factor == 1 or bool(axes_with(known.layout, factor))
        case causes.Scaled(factor, axes, is_scale, is_number_of_parts):
            is_known = axes or is_scale or is_number_of_parts
            whole = round(max(factor, 1 / factor)) if factor else 0
            return len(explained) > 1 or bool(is_known) or is_number(factor, whole)
        case causes.NotCleared() | causes.RanksScaled():
            return False
    return True


def not_a_number(found: ComparedValue, _: Known) -> causes.StepMistake | None:
    """Return the ranks with NaN or infinity where one rank has numbers; None for none."""
    ranks = tuple(
        rank
        for rank, value in found.got.items()
        if value is not None
        if bool(value.isfinite().all()) != bool(found.expected[rank].isfinite().all())
    )
    return causes.NotANumber(ranks) if ranks else None


def _missing(found: ComparedValue, known: Known) -> causes.StepMistake | None:
    empty = [rank for rank in found.wrong_ranks if _is_zero(found.got[rank])]
    if empty != found.wrong_ranks:
        return None
    if all(found.name in known.play.ranks[rank].frozen for rank in empty):
        return causes.OtherlyFrozen(tuple(empty), are_frozen=True)
    return causes.Missing(tuple(empty))


def _is_zero(value: torch.Tensor | None) -> bool:
    return value is None or not value.any()


def _scaled(found: ComparedValue, known: Known) -> causes.StepMistake | None:
    factors = _own_factors(found)
    if len(factors) < len(found.got):
        return None
    factor = common_factor([*factors.values()], RELATIVE + found.relative_slack)
    # A wrong value differs from the right one: rounded digits hide by how much.
    return None if factor is None or factor == 1 else scaled_by(factor, known)


def _own_factors(found: ComparedValue) -> dict[int, float | None]:
    """Return by how much each wrong rank multiplies its right value; None for no multiple."""
    got, right, slack = found.got, found.expected, found.slack
    wrong = found.wrong_ranks
    return {r: factor_of(got[r], right[r], slack_of_base=slack) for r in wrong}


def _ranks_scaled(found: ComparedValue, _: Known) -> causes.StepMistake | None:
    factors = _own_factors(found)
    known = tuple((rank, e) for rank, e in factors.items() if e is not None and e != 1)
    return causes.RanksScaled(known) if len(known) == len(factors) else None


def scaled_by(factor: float, known: Known) -> causes.Scaled:
    """Return the cause of values that are all multiplied by a factor."""
    scale = known.play.scale
    is_scale = scale != 1 and is_number(factor, scale)
    axes, is_parts = axes_with(known.layout, factor), known.is_number_of_parts(factor)
    return causes.Scaled(rounded(factor), axes, is_scale, is_parts)


def _lacks_sum(found: ComparedValue, known: Known) -> causes.StepMistake | None:
    group = known.layout.group
    for axes in axis_sets(known.layout):
        factors = [
            factor_of(value, sum_of(map(found.got.get, group(rank, axes))), found.slack)
            for rank, value in found.expected.items()
        ]
        factor = common_factor(factors, RELATIVE + found.relative_slack)
        is_known = factor == 1 or (factor and axes_with(known.layout, factor))
        if factor is not None and (is_known or not _are_multiples(found)):
            return causes.LacksSum(axes, factor)
    return None


def _are_multiples(found: ComparedValue) -> bool:
    """Tell whether each rank has a multiple of its right value: any factor fits their sum."""
    has_several = any(int(each.count_nonzero()) > 1 for each in found.expected.values())
    return has_several and all(
        factor is not None or _is_zero(found.got[rank])
        for rank, factor in _own_factors(found).items()
    )


def _not_cleared(found: ComparedValue, known: Known) -> causes.StepMistake | None:
    before = None if known.before is None else known.before.get(found.name)
    if before is None or not before.any():
        return None
    for rank in found.wrong_ranks:
        value, expected = found.got[rank], found.expected[rank]
        if value is None or value.shape != before.shape:
            return None
        if factor_of(value - expected, before, 2 * found.slack) is None:
            return None
    return causes.NotCleared()


def _clamped(found: ComparedValue, _: Known) -> causes.StepMistake | None:
    values = [found.got[rank] for rank in found.wrong_ranks]
    present = [each for each in values if each is not None and each.numel() > 1]
    limit = max((float(each.abs().max()) for each in present), default=0.0)
    if not limit or len(present) < len(values):
        return None
    cut_off = {r: found.expected[r].clamp(-limit, limit) for r in found.wrong_ranks}
    is_right = all(is_close(found.got[r], cut_off[r], found.tolerance) for r in cut_off)
    return causes.Clamped(limit) if is_right else None


# From simple to complex.
_FINDERS: Final = (
    not_a_number,
    _missing,
    _scaled,
    _lacks_sum,
    _ranks_scaled,
    _not_cleared,
    _clamped,
    wrong_group,
)


def added_bias(
    wrong: Sequence[ComparedValue], play: MeshPlay, start: NamedTensors
) -> causes.AddedBias | None:
    """Return the biases that are added once a rank, where this gives all wrong gradients.

    A layer that splits its inputs over ranks adds up their outputs. A bias that is no shard belongs to
    the sum: if each rank adds it before, it counts once a rank. Then no gradient is a sum of right
    parts. So one rank plays the step with a larger bias, and has the wrong gradients if this is why.
    The parameters are those before the step.
    """
    if not play.has_loss:
        return None
    for cause in itertools.islice(_biases(play, wrong[0].step, start), _MAX_PLAYS):
        size = play.layout.size(cause.axes)
        larger = {
            name: value * size if value is not None and name in cause.names else value
            for name, value in start.items()
        }
        if _gives(wrong, play, larger):
            return cause
    return None


def _biases(
    play: MeshPlay, step: int, start: NamedTensors
) -> Iterator[causes.AddedBias]:
    """Yield biases whose names differ in numbers alone, pairs of such groups, then each bias."""
    split_over = play.squares(step).split_over
    for axis in play.layout.large_axes:
        names = [
            name
            for name, value in start.items()
            if value is not None and value.dim() == 1 and bool(value.any())
            if axis not in split_over.get(name, ())
        ]
        # Weights of norms have one dimension too.
        names.sort(key=lambda name: "bias" not in name)
        alike = dict[str, tuple[str, ...]]()
        for name in names:
            key = re.sub(r"\d+", "", name)
            alike[key] = (*alike.get(key, ()), name)
        pairs = (a + b for a, b in itertools.combinations(alike.values(), 2))
        alone = ((name,) for name in names)
        for listed in dict.fromkeys([*alike.values(), *pairs, *alone]):
            yield causes.AddedBias(listed, frozenset({axis}))


def _gives(wrong: Sequence[ComparedValue], play: MeshPlay, start: NamedTensors) -> bool:
    """Tell whether one rank has the wrong gradients if it starts with some parameters."""
    try:
        gradients = play.gradients_of([], wrong[0].step, start).whole
    except UsageError:
        return False
    return all(
        each.name in gradients
        and not replace(
            each, expected=play.pieces(each, gradients[each.name])
        ).wrong_ranks
        for each in wrong
    )
