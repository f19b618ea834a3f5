"""One layout beside one rank."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from syncverify.faces.simulation.program import Device
from syncverify.faces.whole_step.data import NotFinite
from syncverify.faces.whole_step.gathered_late import gathered_late
from syncverify.faces.whole_step.lower_dtypes import (
    check_judged,
    reference_in_lower_dtypes,
)
from syncverify.faces.whole_step.outcome import LayoutPlay, worst_errors
from syncverify.faces.whole_step.plain_checks import check_plain
from syncverify.faces.whole_step.playing import beside, play_on
from syncverify.faces.whole_step.training import Training
from syncverify.faces.whole_step.unreached_clip import unreached_clip
from syncverify.faces.whole_step.value_checks import check_batches, check_values
from syncverify.judge.whole_step.batches import num_rows
from syncverify.judge.whole_step.differences import ComparedValue, OneRank, compared
from syncverify.judge.whole_step.findings import WrongQuantity, findings
from syncverify.judge.whole_step.layout import Layout
from syncverify.judge.whole_step.read_elsewhere import read_elsewhere
from syncverify.judge.whole_step.replicas import copies_apart
from syncverify.judge.whole_step.rounding import roundings_of
from syncverify.judge.whole_step.unread import left_steps, unread
from syncverify.judge.whole_step.values import (
    Quantity,
    RankValues,
    StepValues,
    parameter_of,
)


def compare(
    training: Training,
    layout: Layout,
    reference: OneRank,
    device: Device,
    *,
    finds_races: bool = True,
) -> LayoutPlay:
    """Play a training on a layout, and compare its values with those of one rank.

    Args:
        training: Model, data, loss and parallelism that the user describes.
        layout: Names and sizes of the mesh axes.
        reference: Values of one rank.
        device: Device that torch names to the program.
        finds_races: Whether races are looked for as well.

    Returns:
        The play, with the mistakes behind the values that differ.

    Raises:
        UsageError: There is nothing to compare, nothing trains, or the values cannot be judged.
    """
    simulation = play_on(training, layout, device, finds_races=finds_races)
    rows = num_rows(reference.values.batches[0])
    played = LayoutPlay(
        layout,
        training.num_micro_batches,
        simulation,
        rows,
        variation=training.variation,
        is_split=_is_split(training, layout),
    )
    if simulation.refused or simulation.run is None or simulation.run.fault:
        return played
    ranks = [each for each in simulation.results if isinstance(each, RankValues)]
    if len(ranks) < layout.num_ranks:  # `sys.exit(0)` ends a rank, and is no fault
        return played
    ranks = [gathered_late(training, each) for each in ranks]
    check_values(training, ranks, reference.values)
    check_batches(training, layout, ranks, reference.values)
    is_poisoned = isinstance(training.variation, NotFinite)
    if not _is_tried(training, ranks):
        return replace(played, is_tried=False)
    values, reference = _compared(training, layout, ranks, reference, device)
    play = beside(training, layout, ranks, reference, device)
    apart = [each for each in values if training.loss is None and is_apart(each)]
    values = [each for each in values if not any(each is other for other in apart)]
    ignored = [*unread(values, ranks), *left_steps(values)]
    ignored += read_elsewhere(values, play)
    values = [each for each in values if not any(each is other for other in ignored)]
    if not is_poisoned:
        check_judged(values, reference)
    mistakes = tuple[WrongQuantity, ...]()
    if any(each.wrong_ranks for each in values):
        mistakes = tuple(findings(values, play))
        check_plain(training, ranks, mistakes)
    else:
        mistakes = tuple(copies_apart(values, ranks, layout))
    return replace(
        played,
        findings=mistakes,
        num_values=len(values),
        roundings=reference.roundings,
        not_judged=tuple(each for each in values if not each.is_judged),
        worst=worst_errors(values),
        returned_apart=tuple(dict.fromkeys(each.name for each in apart)),
        unread=tuple(
            dict.fromkeys(
                parameter_of(each.name)
                for each in ignored
                if each.quantity is not Quantity.SKIPPED
            )
        ),
        late=tuple(sorted({name for each in ranks for name in each.late})),
        zero=_zero(reference.values),
        absent=_absent(reference.values, ranks),
        added=_names(ranks, without=[reference.values]),
        unclipped=None
        if is_poisoned
        else unreached_clip(training, ranks, reference.values),
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
    training: Training,
    layout: Layout,
    ranks: Sequence[RankValues],
    reference: OneRank,
    device: Device,
) -> tuple[list[ComparedValue], OneRank]:
    """Compare values with the tolerances of float64, or of lower dtypes.

    Those of float64 come first unless a dtype is below float32. If values differ by them, and the
    mesh rounds to a lower dtype, its tolerances count.

    Returns:
        The compared values, and the values of one rank beside them.
    """
    decides = isinstance(training.variation, NotFinite)

    def by(beside: OneRank) -> list[ComparedValue]:
        return [*compared(ranks, beside, layout, training.own, decision_only=decides)]

    roundings = roundings_of(training.dtype, ranks)
    if roundings is None or not roundings.is_low:
        values = by(reference)
        if roundings is None or not any(each.wrong_ranks for each in values):
            return values, reference
    lower = reference_in_lower_dtypes(training, layout, ranks, roundings, device)
    return by(lower), lower


def _is_split(training: Training, layout: Layout) -> bool:
    """Tell whether axes split the batch; a function, and one rank, count as if they did."""
    needs_no_axis = callable(training.split) or layout.num_ranks == 1
    return needs_no_axis or layout.size(training.split_axes(layout)) > 1


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
