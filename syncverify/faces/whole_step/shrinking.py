"""The smallest training that still shows a mistake, and the numbers that a wrong factor may be.

Note [One factor, several numbers]

A factor of 2 is the number of ranks of `dp=2`, and also of micro-batches where there are two. So the
factor is looked at in other trainings: in the one before it was made smaller, on one rank, with one
micro-batch, with fewer rows. A number stays that equals the factor in all of them. Where several
stay, the report names them all; where none does, it names none.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from itertools import chain, combinations
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
    Scaled,
    StepMistake,
    Unexplained,
    UsesWeighted,
    WrongQuantity,
)
from syncverify.judge.whole_step.differences import OneRank
from syncverify.judge.whole_step.factors import RELATIVE
from syncverify.judge.whole_step.layout import Layout
from syncverify.search.budget import Budget, smallest

_MAX_PLAYS: Final = 12
_PARTS: Final = "micro-batches"
_ROWS: Final = "rows of the batch"
_ROWS_OF_RANK: Final = "rows of a rank"
_ROWS_OF_PART: Final = "rows of a micro-batch"
# The axes whose ranks are counted, or the words of another number.
_Number = frozenset[str] | str
_Multiplied = Scaled | UsesWeighted  # whose factor may be a number


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
    """Return another training's play, for its values, and those of one rank; None if it has none."""
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
    sizes = training.all_sizes()
    for name in (name for name, size in sizes.items() if size >= 2):
        yield replace(training, sizes={**sizes, name: sizes[name] // 2}), layout
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
        case CopiesRoundedApart(axes=axes) | Unexplained(axes):
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


@dataclass(frozen=True, slots=True)
class _Seen:
    """A factor in one training."""

    factor: float  # the factor; 1 where all values are right
    numbers: Mapping[_Number, float]

    def names(self, number: _Number) -> bool:
        """Tell whether the factor, or its reciprocal, is a number."""
        value = self.numbers.get(number, 0.0)
        sizes = (self.factor, 1 / self.factor)
        return any(abs(each - value) <= 10 * RELATIVE * value for each in sizes)


def with_its_number(
    training: Training, played: LayoutPlay, finding: WrongQuantity, best: Smaller
) -> WrongQuantity:
    """Return a mistake with the numbers that its factor is in all trainings; see the note above.

    It was found in the play of the training, and made smaller. A mistake of another kind stays as it was.
    """
    cause = best.finding.cause
    if not isinstance(cause, _Multiplied) or getattr(cause, "is_scale", False):
        return best.finding
    if isinstance(cause, UsesWeighted) and not cause.axes:
        return best.finding
    first = [
        _seen(training, played, finding),
        _seen(best.training, best.played, best.finding),
    ]
    seen = [each for each in first if each is not None]
    left = [
        e for e in _different(training, played) if all(each.names(e) for each in seen)
    ]
    for changed in _with_other_numbers(best, left):
        if len(left) and (other := _played(*changed, best.finding)) is not None:
            left = [each for each in left if other.names(each)]
    return replace(best.finding, cause=_with_numbers(cause, left))


def _with_numbers(cause: _Multiplied, left: list[_Number]) -> _Multiplied:
    sets = [each for each in left if isinstance(each, frozenset)]
    fewest = min(map(len, sets), default=0)
    axes = frozenset(each for each in sets if len(each) == fewest)
    if isinstance(cause, UsesWeighted):
        return replace(cause, axes=axes)
    rows = tuple(e for e in left if isinstance(e, str) and e != _PARTS)
    return replace(cause, axes=axes, is_number_of_parts=_PARTS in left, rows=rows)


def _seen(
    training: Training, played: LayoutPlay, finding: WrongQuantity
) -> _Seen | None:
    cause = finding.cause
    if not isinstance(cause, _Multiplied) or not cause.factor:
        return None
    return _Seen(cause.factor, _numbers(training, played))


def _numbers(training: Training, played: LayoutPlay) -> dict[_Number, float]:
    """Return the numbers of a training by what they count; sets of axes come first."""
    layout, parts, rows = played.layout, training.num_micro_batches, played.num_rows
    sizes = range(1, len(layout.names) + 1)
    sets = chain.from_iterable(combinations(layout.names, size) for size in sizes)
    numbers: dict[_Number, float] = {frozenset(e): layout.size(e) for e in sets}
    dims = training.split_axes(layout).items()
    of_rank = rows / layout.size(axis for axis, dim in dims if dim == 0)
    return numbers | {
        _PARTS: parts,
        _ROWS: rows,
        _ROWS_OF_RANK: of_rank,
        _ROWS_OF_PART: of_rank / parts,
    }


def _different(training: Training, played: LayoutPlay) -> dict[_Number, float]:
    """Return the numbers of a training without two that are one there."""
    numbers = _numbers(training, played)
    if numbers[_ROWS_OF_RANK] == numbers[_ROWS]:
        del numbers[_ROWS_OF_RANK]
    if training.num_micro_batches == 1:
        del numbers[_ROWS_OF_PART]
    return numbers


def _with_other_numbers(
    best: Smaller, left: list[_Number]
) -> Iterator[tuple[Training, Layout]]:
    """Yield other trainings, in each of which some of the numbers differ."""
    training, layout, rows = best.training, best.played.layout, best.played.num_rows
    if _PARTS in left and training.num_micro_batches > 1:
        yield replace(training, num_micro_batches=1), layout
    if any(isinstance(each, frozenset) for each in left):
        yield training, layout.of_ones()
    if any(isinstance(each, str) and each != _PARTS for each in left):
        yield replace(training, num_rows=rows // 2), layout


def _played(training: Training, layout: Layout, finding: WrongQuantity) -> _Seen | None:
    """Return the factor in another training; None where it has none, or cannot be played."""
    if (found := for_values(training, layout)) is None:
        return None
    played, _ = found
    if played.is_right:
        return _Seen(1.0, _numbers(training, played))
    same = (each for each in played.findings if each.is_same(finding))
    again = next(same, None)
    return None if again is None else _seen(training, played, again)
