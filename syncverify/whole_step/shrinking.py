"""The smallest training that still shows a mistake."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Final

from syncverify.errors import UsageError
from syncverify.simulation.program import Device
from syncverify.whole_step.comparing import compare
from syncverify.whole_step.findings import WrongQuantity
from syncverify.whole_step.layout import Layout
from syncverify.whole_step.outcome import LayoutPlay
from syncverify.whole_step.playing import reference_of
from syncverify.whole_step.training import Training

_MAX_PLAYS: Final = 12


@dataclass(frozen=True, slots=True)
class Smaller:
    """A training that shows a mistake.

    Attributes:
        training: The training.
        played: Its play.
        finding: The mistake.
    """

    training: Training
    played: LayoutPlay
    finding: WrongQuantity


def shrunk(
    training: Training, played: LayoutPlay, finding: WrongQuantity, device: Device
) -> Smaller:
    """Return the smallest training that was found to show a mistake.

    Each change is kept with which the same values are wrong for a cause of the same kind, except
    for values that the smaller model lacks.
    """
    best = Smaller(training, played, finding)
    plays = 0
    changes = _changes(best)
    while plays < _MAX_PLAYS and (change := next(changes, None)) is not None:
        plays += 1
        if (smaller := _shows(*change, finding, device)) is not None:
            best, changes = smaller, _changes(smaller)
    return best


def _shows(
    training: Training, layout: Layout, finding: WrongQuantity, device: Device
) -> Smaller | None:
    try:
        reference = reference_of(training, layout, device)
        played = compare(training, layout, reference, device)
    except UsageError:  # the smaller training cannot be divided
        return None
    known = {*reference.tensors(finding.quantity, finding.step)}
    alike = (
        each
        for each in played.findings
        if each.is_same(finding) and each.names == finding.names & known
    )
    found = next(alike, None)
    return None if found is None else Smaller(training, played, found)


def _changes(best: Smaller) -> Iterator[tuple[Training, Layout]]:
    """Yield smaller trainings; the changes that make plays fast come first."""
    training, layout = best.training, best.played.layout
    if best.finding.step + 1 < training.num_steps:
        yield replace(training, num_steps=best.finding.step + 1), layout
    for smaller in layout.smaller():
        if smaller.num_ranks > 1:
            yield training, smaller
    if training.num_micro_batches > 1:
        yield replace(training, num_micro_batches=1), layout
    for sizes in training.smaller_sizes():
        yield replace(training, sizes=sizes), layout
    rows = best.played.num_rows
    if rows >= 2:
        yield replace(training, num_rows=rows // 2), layout
