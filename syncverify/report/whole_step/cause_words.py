"""The words of each cause, and of the change that repairs it."""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple

from syncverify.judge.whole_step import causes
from syncverify.judge.whole_step.values import Quantity
from syncverify.plain_text import named
from syncverify.report.whole_step.shown import MAX_NAMES, printed, some_names

_LISTED = "compare the listed values with those of one rank"
# The part of a checkpoint that has each kind of value.
_HELD = {
    Quantity.LOADED: "the model's state_dict()",
    Quantity.LOADED_STATE: "the optimizer's state_dict(), step counters too",
    Quantity.LOADED_RATE: "the schedule's state_dict()",
    Quantity.LOADED_SCALE: "the scaler's state_dict()",
    Quantity.LOADED_GENERATOR: "torch.get_rng_state() of each rank",
}

_JOINED = {
    causes.Joined.MEAN: "the mean of the ranks' own norms",
    causes.Joined.ROOT_OF_MEAN: "the root of the mean of the ranks' own squares",
    causes.Joined.SUM: "the sum of the ranks' own norms",
    causes.Joined.LARGEST: "the largest of the ranks' own norms",
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
        or _unexplained(cause)
    )


def _unexplained(cause: causes.StepMistake) -> CauseWords:
    said = "differs, and no known mistake explains it"
    if not isinstance(cause, causes.Unexplained) or not cause.functions:
        return CauseWords(said)
    names = " or ".join(dict.fromkeys(name for name, _ in cause.functions))
    said = f"differs; likely the backward of {names} is wrong, as only gradients behind its inputs are"
    change = (
        f"compare the gradients that the backward of {names} returns with autograd's"
    )
    return CauseWords(said, change)


def _of_sums(cause: causes.StepMistake) -> CauseWords | None:
    """Return the words about values that are not added, or added too often."""
    match cause:
        case causes.LacksSum(axes, factor):
            times = f", and then a factor of {_factor(factor)}" if factor != 1 else ""
            said = f"lacks the sum over {_axes(axes)}{times}"
            change = f"reduce these gradients over {_axes(axes)}, or mark them as partial there"
        case causes.ReducedOver(axes, right, factor):
            place = f", and not over {_axes(right)}" if right else ""
            times = f", and multiplied by {_factor(factor)}" if factor != 1 else ""
            said = f"added over {_axes(axes)}{place}{times}"
            change = "do not reduce these gradients: ranks own different parts"
            if right:
                change = f"reduce these gradients over {_axes(right)} alone"
        case causes.AddedBias(names=listed, axes=axes):
            names, over = some_names(listed), _axes(axes)
            said = f"each rank of {over} adds {names}, and the ranks' results are summed afterwards"
            change = f"add {names} once: after the sum over {over}, or on one rank"
        case causes.OwnParts():
            said = (
                "a sum over the ranks' own parts of the batch; the loss of the whole batch is no "
                "such sum, as with a batch norm"
            )
            change = "let ranks share the statistics, as SyncBatchNorm does, or mean this function"
        case causes.MixedUp(sums):
            rows = [f"{name} has {_sum(right)}" for name, right in sums]
            more = [f"and {n} more"] if (n := len(rows) - MAX_NAMES) > 0 else []
            said = f"right gradients are at wrong parameters: {', '.join(rows[:MAX_NAMES] + more)}"
            change = (
                "return gradients in the order of the inputs from each backward() of a custom "
                "function; look where a buffer of gradients is cut into those of parameters"
            )
        case causes.NotCleared():
            said = "still has the gradient of the step before"
            change = "call zero_grad() after each step"
        case _:
            return None
    return CauseWords(said, change)


def _of_weights(cause: causes.StepMistake) -> CauseWords | None:
    """Return the words about values, or terms of them, that are multiplied by a number."""
    change = _LISTED
    match cause:
        case causes.TermsWeighted(factors):
            counts = [f"{n} counts {_factor(f)} times" for n, f in factors if f != 1]
            said = f"the term {' and '.join(counts)} what it should"
            if number := _number(cause):
                said = f"{said}: {number}"
            change = "divide each term of the loss by its own count"
        case causes.UsesWeighted(factors):
            uses = [
                f"use {index} of {len(factors)} in the forward pass "
                + (f"counts {_factor(f)} times what it should" if f else "is lost")
                for index, f in enumerate(factors, start=1)
                if f != 1
            ]
            said = ": ".join(filter(None, [", ".join(uses), _number(cause)]))
            change = "let the backward pass of each use add its part once"
        case causes.Scaled():
            return _scaled(cause)
        case causes.RanksScaled(factors):
            ranks = dict[float, list[int]]()
            for rank, factor in factors:
                ranks.setdefault(factor, []).append(rank)
            by = (f"by {_factor(f)} on {named('rank', r)}" for f, r in ranks.items())
            said = f"multiplied {', '.join(by)}"
            change = "multiply by the same number on all ranks; look for code that depends on the rank"
        case causes.Weighted():
            times = (
                f"({', '.join(map(_factor, cause.weights))} times the right weights)"
            )
            said = f"parts of the batch count wrongly {times}"
            if cause.are_equal:
                said = (
                    "each part of the batch weighs the same, whatever its size: a mean of means "
                    f"{times}"
                )
                change = (
                    "divide the sum of all tokens' losses by the number of all tokens"
                )
        case causes.MicroBatchesWeighted():
            listed = ", ".join(map(_factor, cause.factors))
            said = f"the micro-batches of a rank count {listed} times what they should"
            change = (
                "divide, or reduce, once per step: after the last micro-batch, and not all that "
                "was added so far after each one"
                if cause.is_repeated
                else "keep the gradients of all micro-batches until the step: finish and clear "
                "them after the last one"
            )
        case causes.OtherOption(is_left=True):
            said = (
                f"the learning rate stays at {cause.value}, and the schedule of one rank sets "
                f"{cause.expected}: step() takes no `schedule`"
            )
            change = "let step() take `schedule`, and call schedule.step() after the optimizer's step"
        case causes.OtherOption(name, value, expected):
            said = f"updated with {name} {value}, and with {expected} on one rank"
            if number := _number(cause):
                said = f"{said}; the factor is {number}"
            change = "give the optimizer the same options on ranks as on one rank"
        case _:
            return None
    return CauseWords(said, change)


def _scaled(cause: causes.Scaled) -> CauseWords:
    is_larger = cause.factor > 1
    word, factor = (
        ("multiplied", cause.factor) if is_larger else ("divided", 1 / cause.factor)
    )
    if cause.is_scale:
        change = "multiply the loss by the scale, or leave gradients as they are"
        if is_larger:
            change = "unscale gradients before they are clipped or read"
        return CauseWords(f"{word} by the scale of the loss, {factor:g}", change)
    number = _number(cause)
    said = ", ".join(filter(None, [f"{word} by {_factor(factor)}", number]))
    if is_larger and number and " or " not in number:
        change = f"divide the loss, or the sum of gradients, by {number}"
    else:
        verb = "divide" if is_larger else "multiply"
        change = f"{verb} by the right number; look where the divisor comes from"
    return CauseWords(said, change)


def _of_clipping(cause: causes.StepMistake, quantity: Quantity) -> CauseWords | None:
    """Return the words about a norm, and about gradients that it clips."""
    change = "clip the parameters' gradients on all ranks by one norm"
    match cause:
        case causes.NormOf(names=listed, axes=axes, is_missing=True):
            squares, over = f"the squares of {some_names(listed)}", _axes(axes)
            said = f"does not add {squares} over {over}"
            change = f"all-reduce the squares over {over} before the root"
        case causes.NormOf(names=listed, axes=axes):
            squares, over = f"the squares of {some_names(listed)}", _axes(axes)
            said = f"adds once a rank {squares} over {over}"
            change = f"count the squares of one rank of {over} alone"
        case causes.NormOfOneRank(names=listed, axes=axes):
            squares, over = f"the squares of {some_names(listed)}", _axes(axes)
            said = f"adds {squares} of one rank of {over} alone"
            change = (
                f"count all ranks' parts: they are no copies of one another over {over}"
            )
        case causes.NormOfNorms(how=how, axes=axes):
            said = f"is {_JOINED[how]} over {_axes(axes)}"
            change = f"all-reduce the sum of squares over {_axes(axes)} before the root"
        case causes.NormWithout(names=listed):
            said = f"leaves out {some_names(listed)}"
            change = f"add the squares of {some_names(listed)}"
        case causes.NotClipped(coefficient):
            said = f"the coefficient {_factor(coefficient)} of clipping is not applied"
        case causes.OtherCoefficient():
            right, wrong = cause.expected, cause.coefficients
            each = ", ".join(f"rank {r}: {printed(c, right)}" for r, c in wrong.items())
            expected = printed(right, *wrong.values())
            said = f"clipped by a coefficient different from {expected} ({each})"
            if cause.norm is not None:
                of_norm, change = words_of(cause.norm, quantity)
                said = f"{said}: the norm {of_norm}"
        case causes.Clamped(limit):
            said = f"each element is cut off at {limit:g}"
            change = "compare with your own step: leave out `loss`"
        case _:
            return None
    return CauseWords(said, change)


def _of_ranks(cause: causes.StepMistake, quantity: Quantity) -> CauseWords | None:
    """Return the words about ranks that differ from each other, or have no value."""
    change = _LISTED
    match cause:
        case causes.Missing(ranks):
            said = f"{_ranks(ranks, 'has', 'have')} none, or zeros"
        case causes.NotANumber(ranks):
            said = f"{named('rank', ranks)} and one rank differ in where NaN or infinity is"
        case causes.CopiesRoundedApart(axes=axes):
            said = (
                f"copies differ over {_axes(axes)}, and are right within rounding: they drift "
                "apart"
            )
            change = (
                "give all ranks the same bits: let an owner keep the value that it sends, in the "
                "dtype in which it sends it, and let all ranks add in one order"
            )
        case causes.RanksDiffer(are_copies=True):
            over = _axes(cause.axes)
            place = f"; copies differ over {over}" if over else ""
            said = f"{_ranks(cause.ranks, 'has', 'have')} other values{place}"
            if quantity is Quantity.START:
                change = "give all ranks the same values: build with one seed, or broadcast them"
            if quantity is Quantity.NORM and over:
                change = f"let all ranks of {over} use one norm: all-reduce its squares"
        case causes.NotUpdated(ranks):
            said = f"the optimizer of {named('rank', ranks)} does not have it, or leaves it as it was"
            change = "give these parameters to the optimizer"
        case causes.OtherlyFrozen():
            here = ("freezes", "freeze") if cause.are_frozen else ("trains", "train")
            there = "trains" if cause.are_frozen else "freezes"
            said = f"{_ranks(cause.ranks, *here)} it, and one rank {there} it"
            change = "give each parameter of parallelize() the requires_grad that build() gives it"
        case causes.Decided():
            differ = _ranks(cause.ranks, "differs", "differ")
            said = f"{differ} from one rank, which made {cause.expected}"
            change = "let all ranks decide together: all-reduce what was found before the step"
        case _:
            return None
    return CauseWords(said, change)


def _of_checkpoints(cause: causes.StepMistake, quantity: Quantity) -> CauseWords | None:
    """Return the words about values that a checkpoint does not give back."""
    match cause:
        case causes.NotLoaded():
            said = (
                "is as in a new training: the checkpoint lacks it, or it is not loaded"
            )
            change = f"save and load it: {_HELD.get(quantity, 'the listed values')}"
        case causes.Misplaced(is_one_part=True):
            said = f"all {len(cause.order)} parts are copies of part {cause.order[0]}"
            change = "save the part of each rank, and not of one"
        case causes.Misplaced():
            listed = ", ".join(map(str, cause.order))
            said = f"parts are at wrong places: the right parts {listed} in this order"
            change = "save whole tensors, or the place of each part; split them by the new mesh"
        case causes.NotContinued(is_all_compared=True):
            said = "differs after loading, though all that was loaded is right"
            change = (
                "save what the step keeps beside them: a counter, a schedule, a sampler"
            )
        case causes.NotContinued():
            said = (
                "differs after loading; the optimizer's state of tensors that are no parameters "
                "was not compared"
            )
            change = "save and load each rank's own state of the optimizer, and what the step keeps"
        case _:
            return None
    return CauseWords(said, change)


def _ranks(ranks: tuple[int, ...], one: str, several: str) -> str:
    """Return ranks with a verb."""
    return f"{named('rank', ranks)} {one if len(ranks) == 1 else several}"


def _sum(right: Iterable[tuple[str, float]]) -> str:
    """Return a sum of right gradients, of one of each named parameter, as text."""
    times = ((f"{_factor(f)} times " if f != 1 else "", name) for name, f in right)
    return " and ".join(f"{factor}that of {name}" for factor, name in times) or "zeros"


def _number(
    cause: causes.TermsWeighted
    | causes.UsesWeighted
    | causes.Scaled
    | causes.OtherOption,
) -> str:
    """Return "the number of ranks of `dp`" and the like; "" where a factor is no such number."""
    ways = [f"of ranks of {each}" for each in sorted(map(_axes, cause.axes))]
    if getattr(cause, "is_number_of_parts", False):
        ways.append("of micro-batches")
    if isinstance(cause, causes.Scaled):
        ways += (f"of {each}" for each in cause.rows)
    return f"the number {' or '.join(ways)}" if ways else ""


def _factor(number: float) -> str:
    """Return a factor as text: one that is not 1 is not printed as 1."""
    return printed(number, 1.0)


def _axes(axes: Iterable[str]) -> str:
    return " and ".join(f"`{axis}`" for axis in sorted(axes))
