"""The words of each cause, and of the change that repairs it; one function for each cause."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from functools import singledispatch

from syncverify.judge.whole_step.causes import (
    AddedBias,
    Clamped,
    CopiesRoundedApart,
    Decided,
    LacksSum,
    MicroBatchesWeighted,
    Misplaced,
    Missing,
    NormOf,
    NormOfOneRank,
    NormWithout,
    NotANumber,
    NotCleared,
    NotClipped,
    NotContinued,
    NotLoaded,
    NotUpdated,
    OtherCoefficient,
    OtherlyFrozen,
    OtherOption,
    OwnParts,
    RanksDiffer,
    RanksScaled,
    ReducedOver,
    Scaled,
    StepMistake,
    TermsWeighted,
    Unexplained,
    Weighted,
)
from syncverify.judge.whole_step.values import Quantity
from syncverify.plain_text import named
from syncverify.report.whole_step.shown import printed, some_names

_LISTED = "compare the listed values with those of one rank"
# The part of a checkpoint that has each kind of value.
_HELD = {
    Quantity.LOADED: "the model's state_dict()",
    Quantity.LOADED_STATE: "the optimizer's state_dict(), step counters too",
    Quantity.LOADED_RATE: "the schedule's state_dict()",
    Quantity.LOADED_SCALE: "the scaler's state_dict()",
    Quantity.LOADED_GENERATOR: "torch.get_rng_state() of each rank",
}


@dataclass(frozen=True, slots=True)
class CauseWords:
    """The words of a cause.

    Attributes:
        said: The cause, after the name of a value and a colon.
        change: The change that repairs it.
    """

    said: str
    change: str = _LISTED


@singledispatch
def words_of(cause: StepMistake, quantity: Quantity) -> CauseWords:
    """Return the words of a cause; one without a function here has those of `Unexplained`.

    Args:
        cause: The cause.
        quantity: The kind of the wrong values.
    """
    return CauseWords("differs, and no known mistake explains it")


@words_of.register
def _(cause: LacksSum, _quantity: Quantity) -> CauseWords:
    axes = _axes(cause.axes)
    factor = (
        "" if cause.factor == 1 else f", and then a factor of {_factor(cause.factor)}"
    )
    return CauseWords(
        f"lacks the sum over {axes}{factor}",
        f"reduce these gradients over {axes}, or mark them as partial there",
    )


@words_of.register
def _(cause: ReducedOver, _quantity: Quantity) -> CauseWords:
    right = _axes(cause.right)
    place = f", and not over {right}" if right else ""
    factor = "" if cause.factor == 1 else f", and multiplied by {_factor(cause.factor)}"
    return CauseWords(
        f"added over {_axes(cause.axes)}{place}{factor}",
        f"reduce these gradients over {right} alone"
        if right
        else "do not reduce these gradients: ranks own different parts",
    )


@words_of.register
def _(cause: TermsWeighted, _quantity: Quantity) -> CauseWords:
    counts = [f"{n} counts {_factor(f)} times" for n, f in cause.factors if f != 1]
    text = f"the term {' and '.join(counts)} what it should"
    number = _number(cause.axes, is_number_of_parts=cause.is_number_of_parts)
    return CauseWords(
        f"{text}: {number}" if number else text,
        "divide each term of the loss by its own count",
    )


@words_of.register
def _(cause: Scaled, _quantity: Quantity) -> CauseWords:
    is_larger = cause.factor > 1
    word, factor = (
        ("multiplied", cause.factor) if is_larger else ("divided", 1 / cause.factor)
    )
    if cause.is_scale:
        return CauseWords(
            f"{word} by the scale of the loss, {factor:g}",
            "unscale gradients before they are clipped or read"
            if is_larger
            else "multiply the loss by the scale, or leave gradients as they are",
        )
    number = _number(
        cause.axes, is_number_of_parts=cause.is_number_of_parts, rows=cause.rows
    )
    change = (
        f"divide the loss, or the sum of gradients, by {number}"
        if is_larger and number and " or " not in number
        else f"{'divide' if is_larger else 'multiply'} by the right number; look where the "
        "divisor comes from"
    )
    return CauseWords(
        ", ".join(filter(None, [f"{word} by {_factor(factor)}", number])), change
    )


@words_of.register
def _(cause: RanksScaled, _quantity: Quantity) -> CauseWords:
    ranks = dict[float, list[int]]()
    for rank, factor in cause.factors:
        ranks.setdefault(factor, []).append(rank)
    listed = [f"by {_factor(each)} on {named('rank', ranks[each])}" for each in ranks]
    return CauseWords(
        f"multiplied {', '.join(listed)}",
        "multiply by the same number on all ranks; look for code that depends on the rank",
    )


@words_of.register
def _(cause: Missing, _quantity: Quantity) -> CauseWords:
    return CauseWords(f"{_ranks(cause.ranks, 'has', 'have')} none, or zeros")


@words_of.register
def _(cause: AddedBias, _quantity: Quantity) -> CauseWords:
    names, axes = some_names(cause.names), _axes(cause.axes)
    return CauseWords(
        f"each rank of {axes} adds {names}, and the ranks' results are summed afterwards",
        f"add {names} once: after the sum over {axes}, or on one rank",
    )


@words_of.register
def _(_cause: OwnParts, _quantity: Quantity) -> CauseWords:
    return CauseWords(
        "a sum over the ranks' own parts of the batch; the loss of the whole batch is no such "
        "sum, as with a batch norm",
        "let ranks share the statistics, as SyncBatchNorm does, or mean this function",
    )


@words_of.register
def _(_cause: NotCleared, _quantity: Quantity) -> CauseWords:
    return CauseWords(
        "still has the gradient of the step before", "call zero_grad() after each step"
    )


@words_of.register
def _(cause: Weighted, _quantity: Quantity) -> CauseWords:
    weights = ", ".join(map(_factor, cause.weights))
    if not cause.are_equal:
        return CauseWords(
            f"parts of the batch count wrongly ({weights} times the right weights)"
        )
    return CauseWords(
        "each part of the batch weighs the same, whatever its size: a mean of means "
        f"({weights} times the right weights)",
        "divide the sum of all tokens' losses by the number of all tokens",
    )


@words_of.register
def _(cause: MicroBatchesWeighted, _quantity: Quantity) -> CauseWords:
    factors = ", ".join(map(_factor, cause.factors))
    return CauseWords(
        f"the micro-batches of a rank count {factors} times what they should",
        "divide, or reduce, once per step: after the last micro-batch, and not all that was added "
        "so far after each one"
        if cause.is_repeated
        else "keep the gradients of all micro-batches until the step: finish and clear them after "
        "the last one",
    )


@words_of.register
def _(cause: NotANumber, _quantity: Quantity) -> CauseWords:
    return CauseWords(
        f"{named('rank', cause.ranks)} and one rank differ in where NaN or infinity is"
    )


@words_of.register
def _(cause: CopiesRoundedApart, _quantity: Quantity) -> CauseWords:
    return CauseWords(
        f"copies differ over {_axes(cause.axes)}, and are right within rounding: they drift apart",
        "give all ranks the same bits: let an owner keep the value that it sends, in the dtype in "
        "which it sends it, and let all ranks add in one order",
    )


@words_of.register
def _(cause: RanksDiffer, quantity: Quantity) -> CauseWords:
    if not cause.are_copies:
        return words_of(Unexplained(), quantity)
    axes = _axes(cause.axes)
    place = f"; copies differ over {axes}" if axes else ""
    text = f"{_ranks(cause.ranks, 'has', 'have')} other values{place}"
    if quantity is Quantity.START:
        return CauseWords(
            text,
            "give all ranks the same values: build with one seed, or broadcast them",
        )
    if quantity is Quantity.NORM and axes:
        return CauseWords(
            text, f"let all ranks of {axes} use one norm: all-reduce its squares"
        )
    return CauseWords(text)


@words_of.register
def _(cause: NotUpdated, _quantity: Quantity) -> CauseWords:
    return CauseWords(
        f"the optimizer of {named('rank', cause.ranks)} does not have it, or leaves it as it was",
        "give these parameters to the optimizer",
    )


@words_of.register
def _(cause: NormOf, _quantity: Quantity) -> CauseWords:
    names, axes = some_names(cause.names), _axes(cause.axes)
    if cause.is_missing:
        return CauseWords(
            f"does not add the squares of {names} over {axes}",
            f"all-reduce the squares over {axes} before the root",
        )
    return CauseWords(
        f"adds once a rank the squares of {names} over {axes}",
        f"count the squares of one rank of {axes} alone",
    )


@words_of.register
def _(cause: NormOfOneRank, _quantity: Quantity) -> CauseWords:
    names, axes = some_names(cause.names), _axes(cause.axes)
    return CauseWords(
        f"adds the squares of {names} of one rank of {axes} alone",
        f"count all ranks' parts: they are no copies of one another over {axes}",
    )


@words_of.register
def _(cause: NormWithout, _quantity: Quantity) -> CauseWords:
    names = some_names(cause.names)
    return CauseWords(f"leaves out {names}", f"add the squares of {names}")


@words_of.register
def _(cause: NotClipped, _quantity: Quantity) -> CauseWords:
    return CauseWords(
        f"the coefficient {_factor(cause.coefficient)} of clipping is not applied",
        "clip the parameters' gradients on all ranks by one norm",
    )


@words_of.register
def _(cause: OtherCoefficient, quantity: Quantity) -> CauseWords:
    right, wrong = cause.expected, cause.coefficients
    listed = ", ".join(f"rank {r}: {printed(c, right)}" for r, c in wrong.items())
    expected = printed(right, *wrong.values())
    text = f"clipped by a coefficient different from {expected} ({listed})"
    if cause.norm is None:
        return CauseWords(
            text, "clip the parameters' gradients on all ranks by one norm"
        )
    norm = words_of(cause.norm, quantity)
    return CauseWords(f"{text}: the norm {norm.said}", norm.change)


@words_of.register
def _(cause: OtherlyFrozen, _quantity: Quantity) -> CauseWords:
    here = ("freezes", "freeze") if cause.are_frozen else ("trains", "train")
    there = "trains" if cause.are_frozen else "freezes"
    return CauseWords(
        f"{_ranks(cause.ranks, *here)} it, and one rank {there} it",
        "give each parameter of parallelize() the requires_grad that build() gives it",
    )


@words_of.register
def _(cause: OtherOption, _quantity: Quantity) -> CauseWords:
    if cause.is_left:
        return CauseWords(
            f"the learning rate stays at {cause.value}, and the schedule of one rank sets "
            f"{cause.expected}: step() takes no `schedule`",
            "let step() take `schedule`, and call schedule.step() after the optimizer's step",
        )
    number = _number(cause.axes, is_number_of_parts=False)
    factor = f"; the factor is {number}" if number else ""
    values = f"{cause.value}, and with {cause.expected} on one rank"
    return CauseWords(
        f"updated with {cause.name} {values}{factor}",
        "give the optimizer the same options on ranks as on one rank",
    )


@words_of.register
def _(cause: Clamped, _quantity: Quantity) -> CauseWords:
    return CauseWords(
        f"each element is cut off at {cause.limit:g}",
        "compare with your own step: leave out `loss`",
    )


@words_of.register
def _(cause: Decided, _quantity: Quantity) -> CauseWords:
    differ = _ranks(cause.ranks, "differs", "differ")
    return CauseWords(
        f"{differ} from one rank, which made {cause.expected}",
        "let all ranks decide together: all-reduce what was found before the step",
    )


@words_of.register
def _(_cause: NotLoaded, quantity: Quantity) -> CauseWords:
    return CauseWords(
        "is as in a new training: the checkpoint lacks it, or it is not loaded",
        f"save and load it: {_HELD.get(quantity, 'the listed values')}",
    )


@words_of.register
def _(cause: Misplaced, _quantity: Quantity) -> CauseWords:
    if cause.is_one_part:
        return CauseWords(
            f"all {len(cause.order)} parts are copies of part {cause.order[0]}",
            "save the part of each rank, and not of one",
        )
    listed = ", ".join(map(str, cause.order))
    return CauseWords(
        f"parts are at wrong places: the right parts {listed} in this order",
        "save whole tensors, or the place of each part; split them by the new mesh",
    )


@words_of.register
def _(cause: NotContinued, _quantity: Quantity) -> CauseWords:
    if not cause.is_all_compared:
        return CauseWords(
            "differs after loading; the optimizer's state of tensors that are no parameters was not "
            "compared",
            "save and load each rank's own state of the optimizer, and what the step keeps",
        )
    return CauseWords(
        "differs after loading, though all that was loaded is right",
        "save what the step keeps beside them: a counter, a schedule, a sampler",
    )


def _ranks(ranks: tuple[int, ...], one: str, several: str) -> str:
    """Return ranks with a verb."""
    return f"{named('rank', ranks)} {one if len(ranks) == 1 else several}"


def _number(
    axes: Iterable[frozenset[str]],
    *,
    is_number_of_parts: bool,
    rows: Iterable[str] = (),
) -> str:
    """Return "the number of ranks of `dp`" and the like; "" where the factor is no such number."""
    ways = [f"of ranks of {each}" for each in sorted(map(_axes, axes))]
    ways += ["of micro-batches"] if is_number_of_parts else []
    ways += [f"of {each}" for each in rows]
    return f"the number {' or '.join(ways)}" if ways else ""


def _factor(number: float) -> str:
    """Return a factor as text: one that is not 1 is not printed as 1."""
    return printed(number, 1.0)


def _axes(axes: Iterable[str]) -> str:
    return " and ".join(f"`{axis}`" for axis in sorted(axes))
