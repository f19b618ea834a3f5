"""The smallest training that still shows a mistake."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Final

from syncverify.errors import UsageError
from syncverify.faces.whole_step.comparing import compare
from syncverify.faces.whole_step.outcome import LayoutPlay
from syncverify.faces.whole_step.playing import reference_of
from syncverify.faces.whole_step.training import Training
from syncverify.judge.whole_step.causes import (
    CopiesRoundedApart,
    LacksSum,
    NormOf,
    NormOfOneRank,
    RanksDiffer,
    ReducedOver,
    StepMistake,
    WrongQuantity,
)
from syncverify.judge.whole_step.differences import OneRank
from syncverify.judge.whole_step.layout import Layout
from syncverify.search.budget import Budget
from syncverify.search.smallest import smallest

_MAX_PLAYS: Final = 12


@dataclass(frozen=True, slots=True)
class Smaller:
    """A training that shows a mistake, and its play."""

    training: Training
    played: LayoutPlay
    finding: WrongQuantity


def shrunk(training: Training, played: LayoutPlay, finding: WrongQuantity) -> Smaller:
    """Return the smallest training that was found to show a mistake.

    A change is kept if the same values are wrong then, for a cause of the same kind. Values that
    the smaller model lacks do not count.
    """
    budget, tried = Budget(runs_left=_MAX_PLAYS), list[tuple[Training, Layout]]()

    def shown_in(change: tuple[Training, Layout], best: Smaller) -> Smaller | None:
        if change in tried:
            return None
        budget.take_run()
        tried.append(change)
        return _shown(*change, best)

    return smallest(Smaller(training, played, finding), _changes, shown_in)


def for_values(training: Training, layout: Layout) -> tuple[LayoutPlay, OneRank] | None:
    """Play another training for its values alone; None where it cannot be played.

    Returns:
        The play, and the values of one rank.
    """
    try:
        reference = reference_of(training, layout, noises=())
        return compare(training, layout, reference, finds_races=False), reference
    except UsageError:  # such as a batch that cannot be divided
        return None


def _shown(training: Training, layout: Layout, best: Smaller) -> Smaller | None:
    if (found := for_values(training, layout)) is None:
        return None
    played, reference = found
    # A gate of one expert is constant: then a part of the model no longer trains.
    if not {*played.zero} <= {*best.played.zero}:
        return None
    # Names of a smaller model may differ: with one layer less, the last layer has a new name.
    finding, before = best.finding, {*best.played.worst}
    known = {*reference.tensors(finding.quantity, finding.step)}
    for each in played.findings:
        if each.is_same(finding) and each.names & before == finding.names & known:
            return Smaller(training, played, each)
    return None


def _changes(best: Smaller) -> Iterator[tuple[Training, Layout]]:
    """Yield smaller trainings: the smallest ones first, then those of half the size."""
    training, layout = best.training, best.played.layout
    layouts = _smaller_layouts(best)
    for make in (_smallest, _halved):
        for each in (*layouts, layout):
            if (smaller := make(best, each)) != training:
                yield smaller, each
    if best.finding.step + 1 < training.num_steps:
        yield replace(training, num_steps=best.finding.step + 1), layout
    yield from ((training, smaller) for smaller in layouts)
    if training.num_micro_batches > 1:
        yield replace(training, num_micro_batches=1), layout
    for sizes in training.smaller_sizes():
        yield replace(training, sizes=sizes), layout
    rows = best.played.num_rows
    if rows >= 2:
        yield replace(training, num_rows=rows // 2), layout


def _smaller_layouts(best: Smaller) -> list[Layout]:
    """Return layouts with fewer ranks, at least 2; those first that keep the mistake's axes."""
    layout, axes = best.played.layout, _axes(best.finding.cause)
    alone = [layout.alone(axis) for axis in layout.names]
    smaller = [e for e in dict.fromkeys((*alone, *layout.smaller())) if e != layout]
    meshes = [each for each in smaller if each.num_ranks > 1]
    return sorted(meshes, key=lambda each: any(each.size([a]) == 1 for a in axes))


def _axes(cause: StepMistake) -> frozenset[str]:
    """Return the axes that a mistake is about; none where it names none."""
    match cause:
        case LacksSum(axes=axes) | ReducedOver(axes=axes) | RanksDiffer(axes=axes):
            return axes
        case CopiesRoundedApart(axes=axes):
            return axes
        case NormOf(axes=axes) | NormOfOneRank(axes=axes):
            return axes
    return frozenset()


def _smallest(best: Smaller, layout: Layout) -> Training:
    """Return the training with the steps that it needs, all sizes 1, and a row for each rank."""
    training = best.training
    rows = [axis for axis, dim in training.split_axes(layout).items() if dim == 0]
    return _with(best, dict.fromkeys(training.all_sizes(), 1), layout.size(rows))


def _halved(best: Smaller, _: Layout) -> Training:
    """Return the training with the steps that it needs, and half of its sizes and rows."""
    halves = {name: size // 2 or 1 for name, size in best.training.all_sizes().items()}
    return _with(best, halves, best.played.num_rows // 2)


def _with(best: Smaller, sizes: Mapping[str, int], rows: int) -> Training:
    """Return the training with the steps that it needs, one micro-batch, and less of the rest."""
    training, before = best.training, best.training.all_sizes()
    less = {name: size for name, size in sizes.items() if size < before[name]}
    return replace(
        training,
        num_steps=best.finding.step + 1,
        num_micro_batches=1,
        sizes={**training.sizes, **less},
        num_rows=rows if 0 < rows < best.played.num_rows else training.num_rows,
    )
