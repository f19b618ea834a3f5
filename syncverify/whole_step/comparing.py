"""One layout beside one rank."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from syncverify.simulation.playing import Device
from syncverify.whole_step.batches import num_rows
from syncverify.whole_step.differences import ComparedValue, OneRank, compared
from syncverify.whole_step.findings import WrongQuantity, findings
from syncverify.whole_step.gradient_causes import Known
from syncverify.whole_step.layout import Layout
from syncverify.whole_step.outcome import LayoutPlay, WorstError
from syncverify.whole_step.playing import parts_of, play_on
from syncverify.whole_step.training import Training
from syncverify.whole_step.values import Quantity, RankValues


def compare(
    training: Training, layout: Layout, reference: OneRank, device: Device
) -> LayoutPlay:
    """Play a training on a layout, and compare its values with those of one rank."""
    simulation = play_on(training, layout, device)
    rows = num_rows(reference.values.batches[0])
    played = LayoutPlay(layout, training.num_micro_batches, simulation, rows)
    if simulation.refused or simulation.run is None or simulation.run.fault:
        return played
    ranks: tuple[RankValues, ...] = simulation.results
    values = [*compared(ranks, reference, layout, training.own)]
    found = [each for each in values if each.wrong_ranks]
    mistakes = tuple[WrongQuantity, ...]()
    if found:
        known = _known(training, ranks, reference, layout, found[0].step, device)
        mistakes = tuple(findings(found, ranks, reference, training, known))
    return replace(
        played, findings=mistakes, num_values=len(values), worst=_worst(values)
    )


def _worst(values: Sequence[ComparedValue]) -> dict[str, WorstError]:
    """Return the largest difference of each tensor over all steps and quantities."""
    worst = dict[str, WorstError]()
    for each in values:
        known = worst.get(each.name, WorstError(0.0, None))
        wrong = known.quantity or (each.quantity if each.wrong_ranks else None)
        worst[each.name] = WorstError(max(known.error, each.error), wrong)
    return worst


def _known(
    training: Training,
    ranks: Sequence[RankValues],
    reference: OneRank,
    layout: Layout,
    step: int,
    device: Device,
) -> Known:
    scales = reference.tensors(Quantity.SCALE, 0)
    scale = next((float(each) for each in scales.values() if each is not None), 1.0)
    before = reference.tensors(Quantity.GRADIENT, step - 1) if step else None
    return Known(layout, parts_of(training, ranks, step, device), before, scale)
