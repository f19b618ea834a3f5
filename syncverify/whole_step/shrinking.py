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
    tried = list[tuple[Training, Layout]]()
    changes = _changes(best)
    while len(tried) < _MAX_PLAYS and (change := next(changes, None)) is not None:
        if change in tried:
            continue
        tried.append(change)
        if (smaller := _shows(*change, finding, device)) is not None:
            best, changes = smaller, _changes(smaller)
    return best


def _shows(
    training: Training, layout: Layout, finding: WrongQuantity, device: Device
) -> Smaller | None:
    try:
        reference = reference_of(training, layout, device, noises=())
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


def _halved(best: Smaller) -> Training:
    """Return the training with the steps that it needs, and half of its sizes and rows."""
    training = best.training
    sizes = dict(training.sizes)
    for each in training.smaller_sizes():
        sizes |= {n: s for n, s in each.items() if s < sizes.get(n, s + 1)}
    return replace(
        training,
        num_steps=best.finding.step + 1,
        num_micro_batches=1,
        sizes=sizes,
        num_rows=best.played.num_rows // 2 or training.num_rows,
    )


def _changes(best: Smaller) -> Iterator[tuple[Training, Layout]]:
    """Yield smaller trainings; the changes that make plays fast come first."""
    training, layout = best.training, best.played.layout
    smaller_layouts = [each for each in layout.smaller() if each.num_ranks > 1]
    if (halved := _halved(best)) != training:
        yield from ((halved, smaller) for smaller in smaller_layouts)
        yield halved, layout
    if best.finding.step + 1 < training.num_steps:
        yield replace(training, num_steps=best.finding.step + 1), layout
    yield from ((training, smaller) for smaller in smaller_layouts)
    if training.num_micro_batches > 1:
        yield replace(training, num_micro_batches=1), layout
    for sizes in training.smaller_sizes():
        yield replace(training, sizes=sizes), layout
    rows = best.played.num_rows
    if rows >= 2:
        yield replace(training, num_rows=rows // 2), layout
