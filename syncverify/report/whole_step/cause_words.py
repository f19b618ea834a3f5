"""The words of each cause, and of the change that repairs it."""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple

from syncverify.judge.whole_step import causes
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


class CauseWords(NamedTuple):
    """The words of a cause, after the name of a value and a colon, and of the change that repairs it."""

    said: str
    change: str = _LISTED


def words_of(cause: causes.StepMistake, quantity: Quantity) -> CauseWords:
    """Return the words of a cause of wrong values of a kind."""
    return (
        _of_sums(cause)
        or _of_weights(cause)
        or _of_clipping(cause, quantity)
        or _of_ranks(cause, quantity)
        or _of_checkpoints(cause, quantity)
        or CauseWords("differs, and no known mistake explains it")
    )


def _of_sums(cause: causes.StepMistake) -> CauseWords | None:
    """Return the words about values that are not added, or added too often."""
    match cause:
        case causes.LacksSum(axes, factor):
            over = _axes(axes)
            times = f", and then a factor of {_factor(factor)}" if factor != 1 else ""
            return CauseWords(
                f"lacks the sum over {over}{times}",
                f"reduce these gradients over {over}, or mark them as partial there",
            )
        case causes.ReducedOver(axes, right, factor):
            place = f", and not over {_axes(right)}" if right else ""
            times = f", and multiplied by {_factor(factor)}" if factor != 1 else ""
            return CauseWords(
                f"added over {_axes(axes)}{place}{times}",
                f"reduce these gradients over {_axes(right)} alone"
                if right
                else "do not reduce these gradients: ranks own different parts",
            )
        case causes.AddedBias(names=listed, axes=axes):
            names, over = some_names(listed), _axes(axes)
            return CauseWords(
                f"each rank of {over} adds {names}, and the ranks' results are summed afterwards",
                f"add {names} once: after the sum over {over}, or on one rank",
            )
        case causes.OwnParts():
            return CauseWords(
                "a sum over the ranks' own parts of the batch; the loss of the whole batch is no "
                "such sum, as with a batch norm",
                "let ranks share the statistics, as SyncBatchNorm does, or mean this function",
            )
        case causes.NotCleared():
            return CauseWords(
                "still has the gradient of the step before",
                "call zero_grad() after each step",
            )
    return None


def _of_weights(cause: causes.StepMistake) -> CauseWords | None:
    """Return the words about values, or terms of them, that are multiplied by a number."""
    match cause:
        case causes.TermsWeighted():
            counts = [
                f"{n} counts {_factor(f)} times" for n, f in cause.factors if f != 1
            ]
            text = f"the term {' and '.join(counts)} what it should"
            number = _number(cause.axes, is_number_of_parts=cause.is_number_of_parts)
            return CauseWords(
                f"{text}: {number}" if number else text,
                "divide each term of the loss by its own count",
            )
        case causes.Scaled():
            return _scaled(cause)
        case causes.RanksScaled(factors):
            ranks = dict[float, list[int]]()
            for rank, factor in factors:
                ranks.setdefault(factor, []).append(rank)
            by = [
                f"by {_factor(f)} on {named('rank', each)}" for f, each in ranks.items()
            ]
            return CauseWords(
                f"multiplied {', '.join(by)}",
                "multiply by the same number on all ranks; look for code that depends on the rank",
            )
        case causes.Weighted():
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
        case causes.MicroBatchesWeighted():
            listed = ", ".join(map(_factor, cause.factors))
            return CauseWords(
                f"the micro-batches of a rank count {listed} times what they should",
                "divide, or reduce, once per step: after the last micro-batch, and not all that "
                "was added so far after each one"
                if cause.is_repeated
                else "keep the gradients of all micro-batches until the step: finish and clear "
                "them after the last one",
            )
        case causes.OtherOption(is_left=True):
            return CauseWords(
                f"the learning rate stays at {cause.value}, and the schedule of one rank sets "
                f"{cause.expected}: step() takes no `schedule`",
                "let step() take `schedule`, and call schedule.step() after the optimizer's step",
            )
        case causes.OtherOption():
            number = _number(cause.axes, is_number_of_parts=False)
            times = f"; the factor is {number}" if number else ""
            values = f"{cause.value}, and with {cause.expected} on one rank"
            return CauseWords(
                f"updated with {cause.name} {values}{times}",
                "give the optimizer the same options on ranks as on one rank",
            )
    return None


def _scaled(cause: causes.Scaled) -> CauseWords:
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


def _of_clipping(cause: causes.StepMistake, quantity: Quantity) -> CauseWords | None:
    """Return the words about a norm, and about gradients that it clips."""
    by_one_norm = "clip the parameters' gradients on all ranks by one norm"
    match cause:
        case causes.NormOf(names=listed, axes=axes, is_missing=True):
            names, over = some_names(listed), _axes(axes)
            return CauseWords(
                f"does not add the squares of {names} over {over}",
                f"all-reduce the squares over {over} before the root",
            )
        case causes.NormOf(names=listed, axes=axes):
            names, over = some_names(listed), _axes(axes)
            return CauseWords(
                f"adds once a rank the squares of {names} over {over}",
                f"count the squares of one rank of {over} alone",
            )
        case causes.NormOfOneRank(names=listed, axes=axes):
            names, over = some_names(listed), _axes(axes)
            return CauseWords(
                f"adds the squares of {names} of one rank of {over} alone",
                f"count all ranks' parts: they are no copies of one another over {over}",
            )
        case causes.NormWithout(names=listed):
            names = some_names(listed)
            return CauseWords(f"leaves out {names}", f"add the squares of {names}")
        case causes.NotClipped(coefficient):
            return CauseWords(
                f"the coefficient {_factor(coefficient)} of clipping is not applied",
                by_one_norm,
            )
        case causes.OtherCoefficient():
            right, wrong = cause.expected, cause.coefficients
            each = ", ".join(f"rank {r}: {printed(c, right)}" for r, c in wrong.items())
            expected = printed(right, *wrong.values())
            text = f"clipped by a coefficient different from {expected} ({each})"
            if cause.norm is None:
                return CauseWords(text, by_one_norm)
            norm = words_of(cause.norm, quantity)
            return CauseWords(f"{text}: the norm {norm.said}", norm.change)
        case causes.Clamped(limit):
            return CauseWords(
                f"each element is cut off at {limit:g}",
                "compare with your own step: leave out `loss`",
            )
    return None


def _of_ranks(cause: causes.StepMistake, quantity: Quantity) -> CauseWords | None:
    """Return the words about ranks that differ from each other, or have no value."""
    match cause:
        case causes.Missing(ranks):
            return CauseWords(f"{_ranks(ranks, 'has', 'have')} none, or zeros")
        case causes.NotANumber(ranks):
            return CauseWords(
                f"{named('rank', ranks)} and one rank differ in where NaN or infinity is"
            )
        case causes.CopiesRoundedApart(axes=axes):
            return CauseWords(
                f"copies differ over {_axes(axes)}, and are right within rounding: they drift "
                "apart",
                "give all ranks the same bits: let an owner keep the value that it sends, in the "
                "dtype in which it sends it, and let all ranks add in one order",
            )
        case causes.RanksDiffer(are_copies=True):
            over = _axes(cause.axes)
            place = f"; copies differ over {over}" if over else ""
            text = f"{_ranks(cause.ranks, 'has', 'have')} other values{place}"
            if quantity is Quantity.START:
                change = "give all ranks the same values: build with one seed, or broadcast them"
                return CauseWords(text, change)
            if quantity is Quantity.NORM and over:
                change = f"let all ranks of {over} use one norm: all-reduce its squares"
                return CauseWords(text, change)
            return CauseWords(text)
        case causes.NotUpdated(ranks):
            return CauseWords(
                f"the optimizer of {named('rank', ranks)} does not have it, or leaves it as it was",
                "give these parameters to the optimizer",
            )
        case causes.OtherlyFrozen():
            here = ("freezes", "freeze") if cause.are_frozen else ("trains", "train")
            there = "trains" if cause.are_frozen else "freezes"
            return CauseWords(
                f"{_ranks(cause.ranks, *here)} it, and one rank {there} it",
                "give each parameter of parallelize() the requires_grad that build() gives it",
            )
        case causes.Decided():
            differ = _ranks(cause.ranks, "differs", "differ")
            return CauseWords(
                f"{differ} from one rank, which made {cause.expected}",
                "let all ranks decide together: all-reduce what was found before the step",
            )
    return None


def _of_checkpoints(cause: causes.StepMistake, quantity: Quantity) -> CauseWords | None:
    """Return the words about values that a checkpoint does not give back."""
    match cause:
        case causes.NotLoaded():
            return CauseWords(
                "is as in a new training: the checkpoint lacks it, or it is not loaded",
                f"save and load it: {_HELD.get(quantity, 'the listed values')}",
            )
        case causes.Misplaced(is_one_part=True):
            return CauseWords(
                f"all {len(cause.order)} parts are copies of part {cause.order[0]}",
                "save the part of each rank, and not of one",
            )
        case causes.Misplaced():
            listed = ", ".join(map(str, cause.order))
            return CauseWords(
                f"parts are at wrong places: the right parts {listed} in this order",
                "save whole tensors, or the place of each part; split them by the new mesh",
            )
        case causes.NotContinued(is_all_compared=True):
            return CauseWords(
                "differs after loading, though all that was loaded is right",
                "save what the step keeps beside them: a counter, a schedule, a sampler",
            )
        case causes.NotContinued():
            return CauseWords(
                "differs after loading; the optimizer's state of tensors that are no parameters "
                "was not compared",
                "save and load each rank's own state of the optimizer, and what the step keeps",
            )
    return None


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
