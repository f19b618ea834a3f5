"""One layout beside one rank, or beside another layout."""

import math
from collections.abc import Iterable, Sequence
from dataclasses import replace
from itertools import permutations

from syncverify.faces.whole_step.data import NotFinite
from syncverify.faces.whole_step.outcome import LayoutPlay, UnreachedClip, worst_errors
from syncverify.faces.whole_step.playing import (
    beside,
    gathered_late,
    play_on,
    ranks_of,
    reference_in_lower_dtypes,
)
from syncverify.faces.whole_step.training import Training
from syncverify.faces.whole_step.value_checks import (
    check_batches,
    check_judged,
    check_plain,
    check_values,
)
from syncverify.judge.properties.trainings import mesh_has_values_of_one_rank
from syncverify.judge.whole_step.differences import ComparedValue, OneRank, compared
from syncverify.judge.whole_step.layout import Layout
from syncverify.judge.whole_step.parts import as_one_rank, num_rows
from syncverify.judge.whole_step.rounding import roundings_of
from syncverify.judge.whole_step.unread import left_steps, read_elsewhere, unread
from syncverify.judge.whole_step.values import (
    Quantity,
    RankValues,
    StepValues,
    parameter_of,
)


def compare(
    training: Training, layout: Layout, reference: OneRank, *, finds_races: bool = True
) -> LayoutPlay:
    """Return a play of a training on a layout, whose values are compared with those of one rank."""
    simulation = play_on(training, layout, finds_races=finds_races)
    played = LayoutPlay(
        layout,
        training.num_micro_batches,
        simulation,
        num_rows(reference.values.batches[0]),
        variation=training.variation,
        # A function, and one rank, count as if they split the batch.
        is_split=callable(training.split)
        or layout.num_ranks == 1
        or layout.size(training.split_axes(layout)) > 1,
    )
    ranks = ranks_of(simulation, layout)
    has_ended = simulation.run is not None and not simulation.run.fault
    if simulation.refused or not has_ended or ranks is None:
        return played
    ranks = [gathered_late(training, each) for each in ranks]
    check_values(training, ranks, reference.values)
    check_batches(training, layout, ranks, reference.values)
    if not _is_tried(training, ranks):
        return replace(played, is_tried=False)
    values, reference = _compared(training, layout, ranks, reference)
    play = beside(training, layout, ranks, reference)
    apart = [each for each in values if training.loss is None and is_apart(each)]
    values = [each for each in values if each not in apart]
    ignored = [*unread(values, ranks), *left_steps(values)]
    ignored += read_elsewhere(values, play)
    values = [each for each in values if each not in ignored]
    is_poisoned = isinstance(training.variation, NotFinite)
    if not is_poisoned:
        check_judged(values, reference)
    mistakes = mesh_has_values_of_one_rank(values, play)
    check_plain(training, ranks, mistakes)
    one = reference.values
    gradients = (each for each in ignored if each.quantity is not Quantity.SKIPPED)
    return replace(
        played,
        findings=tuple(mistakes),
        num_values=len(values),
        roundings=reference.roundings,
        not_judged=tuple(each for each in values if not each.is_judged),
        worst=worst_errors(values),
        returned_apart=tuple(dict.fromkeys(each.name for each in apart)),
        unread=tuple(dict.fromkeys(parameter_of(each.name) for each in gradients)),
        late=tuple(sorted({name for each in ranks for name in each.late})),
        zero=_zero(one),
        absent=_absent(one, ranks),
        added=_names(ranks, without=[one]),
        unclipped=None if is_poisoned else _unreached_clip(training, ranks, one),
    )


def _is_tried(training: Training, ranks: Sequence[RankValues]) -> bool:
    """Tell whether a gradient was no number, and the scaler had to find it."""
    match training.variation:
        case NotFinite(is_local=True):
            # A rank that skips by its own decision may not unscale, and others do.
            looks = any(each.is_poisoned or not each.num_steps for each in ranks)
            return looks and any(each.has_infinite_loss for each in ranks)
        case NotFinite():
            return all(each.is_poisoned for each in ranks)
    return True


def is_apart(value: ComparedValue) -> bool:
    """Tell whether a step also returns another value, such as the loss of a rank's part."""
    is_other = value.quantity is Quantity.RETURNED and value.name != "norm"
    return is_other and bool(value.wrong_ranks)


def _compared(
    training: Training, layout: Layout, ranks: Sequence[RankValues], reference: OneRank
) -> tuple[list[ComparedValue], OneRank]:
    """Return values, compared with the tolerances of float64 or of lower dtypes, and their reference.

    Those of float64 come first unless a dtype is below float32. If values differ by them, and the
    mesh rounds to a lower dtype, its tolerances count.
    """
    decides = isinstance(training.variation, NotFinite)

    def by(beside: OneRank) -> list[ComparedValue]:
        return [*compared(ranks, beside, layout, training.own, decision_only=decides)]

    roundings = roundings_of(training.dtype, ranks)
    if roundings is None or not roundings.is_low:
        values = by(reference)
        if roundings is None or not any(each.wrong_ranks for each in values):
            return values, reference
    lower = reference_in_lower_dtypes(training, layout, ranks, roundings)
    return by(lower), lower


def _zero(values: RankValues) -> tuple[str, ...]:
    """Return the parameters whose gradients are zero in all steps, so that they show nothing."""
    return tuple(
        name
        for name in values.start
        if name not in values.frozen
        and not any(_has_gradient(each, name) for each in values.steps)
    )


def _has_gradient(step: StepValues, name: str) -> bool:
    kinds = (Quantity.GRADIENT, Quantity.STEPPED)
    found = [step.tensors.get(each, {}).get(name) for each in kinds]
    return any(each is not None and bool(each.any()) for each in found)


def _absent(plain: RankValues, ranks: Sequence[RankValues]) -> tuple[str, ...]:
    """Return the parameters of one rank that no rank of the mesh has under any name."""
    names = _names([plain], without=ranks)
    return tuple(name for name in names if plain.first_names.get(name, name) in names)


def _names(
    values: Sequence[RankValues], *, without: Sequence[RankValues]
) -> tuple[str, ...]:
    """Return the parameters of some ranks that others have not."""
    others = {name for each in without for name in each.start}
    names = dict.fromkeys(name for each in values for name in each.start)
    return tuple(name for name in names if name not in others)


def _unreached_clip(
    training: Training, ranks: Sequence[RankValues], one_rank: RankValues
) -> UnreachedClip | None:
    """Return the largest norm that no gradient norm reaches; None if one does, or none is known.

    One rank has the norm where the code of the user clips on the mesh.
    """
    of_ranks = [*_pairs(step for each in ranks for step in each.steps)]
    alone = [] if training.clip is None else [*_pairs(one_rank.steps)]
    pairs = of_ranks or alone
    if not pairs or any(not norm < max_norm < math.inf for norm, max_norm in pairs):
        return None
    return UnreachedClip(*max(pairs))


def _pairs(steps: Iterable[StepValues]) -> Iterable[tuple[float, float]]:
    """Yield the norm and the largest norm of each step that torch's clipping was called in."""
    for each in steps:
        norm = each.tensors.get(Quantity.NORM, {}).get("norm")
        if norm is not None and each.max_norm is not None:
            yield float(norm), each.max_norm


def outvoting(plays: Sequence[LayoutPlay], training: Training) -> Layout | None:
    """Return a layout that agrees with another one where none agrees with one rank.

    One mistake may be in all layouts with a size of an axis, and they agree then. So layouts
    count only if no axis has the same number of ranks, above one, in both.

    None where one rank is not the odd one out, or `own` is a function, which cannot be reversed.
    """
    large = [
        each
        for each in plays
        if each.variation is None
        and each.saved_on is None
        and each.layout.num_ranks > 1
        and each.num_values
    ]
    if callable(training.own) or any(each.is_right for each in large):
        return None
    agreeing = (
        one.layout
        for one, other in permutations(large, 2)
        if not one.layout.large_axes.items() & other.layout.large_axes.items()
        and _agree(one, one, training)
        and _agree(one, other, training)
    )
    return next(agreeing, None)


def _agree(one: LayoutPlay, other: LayoutPlay, training: Training) -> bool:
    """Tell whether the values of one layout are those of another one."""
    reference = OneRank(as_one_rank(one.simulation.results, one.layout, training.own))
    ranks: Sequence[RankValues] = other.simulation.results
    values = compared(ranks, reference, other.layout, training.own)
    return not any(each.wrong_ranks and not is_apart(each) for each in values)
