"""The lines of a program where a mistake may be: functions of the training, and collectives."""

from collections.abc import Iterator, Sequence
from typing import Final

from syncverify.faces.whole_step.training import Training
from syncverify.judge.traced import shared_launches
from syncverify.judge.whole_step.causes import (
    CopiesRoundedApart,
    NormOf,
    NotUpdated,
    OtherCoefficient,
    OwnParts,
    ReducedOver,
    Scaled,
    StepMistake,
    TermsWeighted,
    Unexplained,
    UsesWeighted,
    Weighted,
    WrongQuantity,
)
from syncverify.judge.whole_step.layout import Layout
from syncverify.judge.whole_step.values import Quantity
from syncverify.trace.run import Run
from syncverify.trace.source_files import is_torch_line
from syncverify.trace.source_lines import SourceLine, first_line, lines_among

_MAX_COLLECTIVES: Final = 2
_OF_LOADING: Final = {each for each in Quantity if each.name.startswith("LOADED")}


def places_of(
    finding: WrongQuantity,
    training: Training,
    layout: Layout,
    run: Run | None,
    backwards: Sequence[SourceLine] = (),
) -> tuple[SourceLine, ...]:
    """Return where to look: uses, collectives and autograd functions of a mistake, then functions.

    The backwards are lines of the program that call `backward()` in the step.
    """
    if isinstance(finding.cause, Unexplained) and finding.cause.functions:
        lines = (line for _, listed in finding.cause.functions for line in listed)
        return tuple(dict.fromkeys(lines))
    collectives = [] if run is None else [*_collectives(finding.cause, layout, run)]
    if isinstance(finding.cause, CopiesRoundedApart):
        collectives = [*dict.fromkeys(collectives)]
        if finding.quantity is Quantity.PARAMETER:  # sent after the optimizer's step
            collectives.reverse()
    if divisors := _divisors(finding, collectives, backwards):
        return divisors
    functions = [getattr(training, name) for name in _functions(finding)]
    firsts = (first_line(each) for each in functions if each is not None)
    listed = [*collectives[:_MAX_COLLECTIVES], *(each for each in firsts if each)]
    if isinstance(finding.cause, UsesWeighted):
        listed = [*finding.cause.lines, *listed]
    return tuple(dict.fromkeys(listed))


def _divisors(
    finding: WrongQuantity,
    collectives: Sequence[SourceLine],
    backwards: Sequence[SourceLine],
) -> tuple[SourceLine, ...]:
    """Return the lines that a divisor belongs to: reductions, or the backward of a loss."""
    cause = finding.cause
    if not isinstance(cause, Scaled) or finding.quantity is not Quantity.GRADIENT:
        return ()
    is_of_loss = cause.is_number_of_parts or bool(cause.rows)
    listed = [*collectives[:_MAX_COLLECTIVES]]
    listed += backwards[:_MAX_COLLECTIVES] if is_of_loss else []
    return tuple(dict.fromkeys(listed))


def _functions(finding: WrongQuantity) -> tuple[str, ...]:
    """Return names of functions: those that make such a mistake, or else make the wrong value."""
    match finding.cause:
        case Weighted() | TermsWeighted() | OwnParts():
            return ("step", "loss")
        case NotUpdated():
            return ("optimizer", "parallelize")
    if finding.quantity in _OF_LOADING:
        return ("save", "load")
    if finding.quantity is Quantity.START:
        return ("build", "parallelize")
    return ("step", "parallelize")


def _collectives(cause: StepMistake, layout: Layout, run: Run) -> Iterator[SourceLine]:
    """Yield the lines that reduce over the axes of a mistake; of copies, all collectives."""
    groups = {
        tuple(layout.group(rank, axes))
        for axes in _reduced_over(cause)
        for rank in range(layout.num_ranks)
    }
    for rank in run.ranks:
        for launch in shared_launches(rank.trace):
            is_meant = launch.reduce_op or isinstance(cause, CopiesRoundedApart)
            if tuple(sorted(launch.ranks)) in groups and is_meant:
                lines = lines_among([launch.source, *launch.callers])
                yield from [each for each in lines if not is_torch_line(each.file)][:1]


def _reduced_over(cause: StepMistake) -> list[frozenset[str]]:
    """Return the axes over which a mistake adds too much, or copies differ."""
    match cause:
        case ReducedOver(axes=axes) | NormOf(axes=axes, is_missing=False):
            return [axes]
        case CopiesRoundedApart(axes=axes):
            return [axes]
        case Scaled(axes=sets) | UsesWeighted(axes=sets):
            return [*sets]
        case OtherCoefficient(norm=NormOf() as norm):
            return _reduced_over(norm)
    return []
