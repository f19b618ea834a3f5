"""A comparison with one rank as text."""

from __future__ import annotations

import shlex
from collections.abc import Iterable, Iterator
from dataclasses import replace
from typing import Any

import torch

from syncverify.plain_text import counted, named
from syncverify.whole_step.causes import (
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
    OwnParts,
    RanksDiffer,
    ReducedOver,
    Scaled,
    StepMistake,
    TermsWeighted,
    Weighted,
)
from syncverify.whole_step.data import AllOnes, EmptyPart, NotFinite, UnequalTokens
from syncverify.whole_step.findings import WrongQuantity
from syncverify.whole_step.outcome import Comparison, FoundMistake, LayoutPlay
from syncverify.whole_step.training import Beside, Variation
from syncverify.whole_step.values import Quantity

# The part of a checkpoint that has each kind of value.
_HELD = {
    Quantity.LOADED: "the model's state_dict()",
    Quantity.LOADED_STATE: "the optimizer's state_dict(), step counters too",
    Quantity.LOADED_RATE: "the schedule's state_dict()",
    Quantity.LOADED_SCALE: "the scaler's state_dict()",
    Quantity.LOADED_GENERATOR: "torch.get_rng_state() of each rank",
}
_MAX_NAMES = 6
_MAX_RANKS = 4


def text_of(outcome: Comparison) -> str:
    """Return the report of a comparison."""
    count = len(outcome.mistakes)
    blocks = list[str]()
    for number, each in enumerate(outcome.mistakes, start=1):
        title = "WRONG" if count == 1 else f"WRONG {number} of {count}"
        blocks.append(mistake_text(outcome, each, title))
    for played in outcome.plays:
        if played.simulation.violations:
            blocks.append(f"layout {played.layout}:\n{played.simulation}")
    return "\n\n".join([*blocks, *_table(outcome), verdict(outcome)])


def mistake_text(outcome: Comparison, found: FoundMistake, title: str = "WRONG") -> str:
    """Return the lines of one mistake."""
    return "\n".join(_lines(outcome, found, title))


def _table(outcome: Comparison) -> list[str]:
    lines = [f"  {played.layout!s:<24} {_said(played)}" for played in outcome.plays]
    if not lines:
        return []
    notes = dict.fromkeys([*_unshown(outcome.plays), *unjudged(outcome)])
    return ["\n".join(["layouts:", *lines, *notes])]


def _unshown(plays: Iterable[LayoutPlay]) -> Iterator[str]:
    """Yield the parameters of which the plays show nothing, or less."""
    for played in plays:
        if played.zero and played.variation is None:
            yield (
                f"  not shown: {_names(played.zero)}: gradients are zero on one rank in all "
                "steps; make more steps, or other data"
            )
        if not played.is_split:
            yield (
                f"  note: all ranks of {played.layout} have the same rows: no axis splits the "
                "batch. Say in `split` if one does"
            )
        for each in played.unexplained:
            first = each.differences[0]
            yield (
                f"  not judged: with gradients of all ones, the {each.quantity.value} of "
                f"{played.layout} is {_shown(first.got[min(first.got)])}, and not "
                f"{_shown(next(iter(first.expected.values())))}: another norm, or a mistake"
            )
        if played.absent:
            yield f"  not compared: {_names(played.absent)}: no rank has a parameter of this name"
        if played.added:
            yield f"  not compared: {_names(played.added)}: build() makes no such parameter"


def unjudged(outcome: Comparison) -> Iterator[str]:
    """Yield the limits of a comparison of an own step with itself."""
    if outcome.beside is None:
        return
    has_ones = any(
        isinstance(e.variation, AllOnes) and e.is_tried for e in outcome.plays
    )
    beside = ", other than in norm and clipping" if has_ones else ""
    yield (
        f"  not judged: a mistake that is in all layouts alike{beside}: an own step is compared "
        "with itself alone. Pass `loss`, and torch's plain step is the reference"
    )
    numbers = {each.num_micro_batches for each in outcome.plays}
    if len(numbers) == 1 and (number := numbers.pop()) > 1:
        yield (
            f"  not judged: whether the number of micro-batches counts: it is always {number}. "
            f"Say micro_batches=(1, {number})"
        )
    if outcome.why_not_alone:
        yield f"  not judged: one rank: {outcome.why_not_alone}"


def variation_text(variation: Variation) -> str:
    """Return how the data differ."""
    match variation:
        case UnequalTokens(key):
            return f"ranks have unequal numbers of tokens ({key!r} is 0 for the others)"
        case EmptyPart(key):
            return f"the last micro-batch is padding ({key!r} is 0)"
        case AllOnes():
            return "all elements of gradients are one number"
        case NotFinite(name, value):
            return f"{value} in the last element of the gradient of {name}, before unscaling"
    return variation.word


def _said(played: LayoutPlay) -> str:
    parts = _micro_batches(played.num_micro_batches)
    if played.variation is not None:
        parts = f"{parts}, {played.variation.word}"
    if played.saved_on is not None:
        parts = f"{parts}, saved on {played.saved_on} and loaded"
    if not played.is_tried:
        return f"{parts}: not tried, since {_why_not_tried(played.variation)}"
    if played.simulation.refused:
        return f"{parts}: not simulated"
    if played.left_early:
        ranks = named("rank", played.left_early)
        return f"{parts}: WRONG, {ranks} ended before the training, without an error"
    if not played.num_values:
        return f"{parts}: did not end"
    word = "right" if played.is_right else "WRONG"
    return (
        f"{parts}: {word}, largest difference {played.worst_error:.1e} of "
        f"{counted(played.num_values, 'value')}"
    )


def _why_not_tried(variation: Variation | None) -> str:
    match variation:
        case AllOnes():
            return (
                "autograd or FSDP2 does not make each gradient of the plain parameters"
            )
    return "the step does not unscale() by the scaler"


def verdict(outcome: Comparison) -> str:
    """Return the last line: what was found, and what was compared."""
    layouts = {each.layout for each in outcome.plays}
    scope = f"{counted(len(layouts), 'layout')}, {counted(outcome.num_steps, 'step')}"
    if outcome.refused and not outcome.mistakes and not outcome.num_violations:
        return f"NOT SIMULATED: {outcome.name} ({scope}): {outcome.refused}"
    unfinished = sum(1 for each in outcome.plays if each.left_early)
    wrong = len(outcome.mistakes) + outcome.num_violations + unfinished
    title = counted(wrong, "MISTAKE").upper() if wrong else "NO MISTAKE"
    return f"{title}: {outcome.name} ({scope}, seed {outcome.seed})"


def _lines(outcome: Comparison, found: FoundMistake, title: str) -> Iterator[str]:
    finding = found.finding
    yield f"{title}: {finding.quantity.value}, {said(finding)}"
    parts = _micro_batches(found.num_micro_batches)
    yield f"  layout:   {found.layout}, {parts}, step {finding.step + 1}"
    if found.saved_on is not None:
        yield f"  saved on: {found.saved_on}"
    if found.variation is not None:
        yield f"  data:     {variation_text(found.variation)}"
    yield f"  values:   {_names(each.name for each in finding.differences)}"
    first = finding.differences[0]
    for rank in [*first.got][:_MAX_RANKS]:
        mark = "wrong" if rank in first.wrong_ranks else "right"
        yield f"            {first.name} on rank {rank}: {_shown(first.got[rank])} ({mark})"
    yield f"            {_place(outcome, found)}: {_shown(next(iter(first.expected.values())))}"
    if outcome.differing(found) and outcome.agreeing():
        yield f"  odd one:  {_odd_one(outcome, found)}"
    if finding.spread:
        yield f"  spreads:  to {_names(each.name for each in finding.spread)}"
    if finding.follows:
        yield f"  follows:  {', '.join(each.value for each in finding.follows)}"
    others = [str(each) for each in found.layouts if each != found.layout]
    if others:
        yield f"  also in:  {'; '.join(others)}"
    yield f"  remedy:   {remedy(finding)}"
    if outcome.path:
        yield f"  replay:   {replay_line(outcome, found)}"


def _place(outcome: Comparison, found: FoundMistake) -> str:
    """Return where the right value comes from."""
    if isinstance(found.variation, AllOnes):
        return "in closed form"
    return f"on {'one rank' if outcome.beside is None else _setup(outcome.beside, outcome)}"


def _odd_one(outcome: Comparison, found: FoundMistake) -> str:
    """Return the layouts that differ, and the others."""
    odd, others = outcome.differing(found), outcome.agreeing()
    word = "differs" if len(odd) == 1 else "differ"
    count = "the other" if len(others) == 1 else f"the {len(others)} others"
    listed = "; ".join(_setup(each, outcome) for each in others)
    who = " and ".join(_setup(each, outcome) for each in odd)
    return f"{who} {word} from {count}: {listed}"


def _setup(setup: Beside, outcome: Comparison) -> str:
    numbers = {each.num_micro_batches for each in outcome.plays}
    if len(numbers) == 1:
        return str(setup.layout)
    return f"{setup.layout} with {_micro_batches(setup.num_micro_batches)}"


def _micro_batches(number: int) -> str:
    return counted(number, "micro-batch").replace("chs", "ches")


def replay_line(outcome: Comparison, found: FoundMistake) -> str:
    """Return the command that plays the smallest training again."""
    # The number of steps says after which step a training is saved.
    steps = found.finding.step + 1 if found.saved_on is None else outcome.num_steps
    listed = dict.fromkeys(each for each in (found.saved_on, found.layout) if each)
    words = [f"syncverify parity {shlex.quote(outcome.path)}"]
    words += [f"--layouts {each}" for each in listed]
    words += [f"--steps {steps} --seed {outcome.seed}"]
    if any(each.num_micro_batches > 1 for each in outcome.plays):
        words.append(f"--micro-batches {found.num_micro_batches}")
    words += [f"--size {name} {size}" for name, size in found.sizes]
    if found.num_rows is not None:
        words.append(f"--rows {found.num_rows}")
    if found.variation is not None:
        words.append(f"--data {found.variation.word}")
    return " ".join(words)


def said(finding: WrongQuantity) -> str:
    """Return the mistake in words."""
    count, total = len(finding.differences), finding.num_values
    scope = f"{count} of {total}" if total > 1 else "the value"
    return f"{scope}: {cause_text(finding.cause)}"


def cause_text(cause: StepMistake) -> str:
    """Return what a cause says of a value."""
    match cause:
        case LacksSum(axes, factor):
            text = f"lacks the sum over {_axes(axes)}"
            return text if factor == 1 else f"{text}, and then a factor of {factor:g}"
        case ReducedOver(axes, right, factor):
            place = f", and not over {_axes(right)}" if right else ""
            text = f"added over {_axes(axes)}{place}"
            return text if factor == 1 else f"{text}, and multiplied by {factor:g}"
        case TermsWeighted(factors, axes, is_parts):
            listed = " and ".join(
                f"{name} counts {number:g} times"
                for name, number in factors
                if number != 1
            )
            text = f"the term {listed} what it should"
            said_of = _number(axes, is_number_of_parts=is_parts)
            return f"{text}: {said_of}" if said_of else text
        case Scaled(factor, axes, is_scale, is_parts):
            word = "multiplied" if factor > 1 else "divided"
            number = factor if factor > 1 else 1 / factor
            if is_scale:
                return f"{word} by the scale of the loss, {number:g}"
            said_of = _number(axes, is_number_of_parts=is_parts)
            return ", ".join(filter(None, [f"{word} by {number:g}", said_of]))
        case Missing(ranks):
            return f"{_ranks(ranks, 'has', 'have')} none, or zeros"
        case OwnParts():
            return (
                "a sum over the ranks' own parts of the batch; the loss of the whole batch is "
                "no such sum, as with a batch norm"
            )
        case NotCleared():
            return "still has the gradient of the step before"
        case Weighted(weights, are_equal):
            listed = ", ".join(f"{each:g}" for each in weights)
            why = (
                "each part of the batch weighs the same, whatever its size: a mean of means"
                if are_equal
                else "parts of the batch count wrongly"
            )
            return f"{why} ({listed} times the right weights)"
        case MicroBatchesWeighted(factors):
            listed = ", ".join(f"{each:g}" for each in factors)
            return f"the micro-batches of a rank count {listed} times what they should"
        case NotANumber(ranks):
            return f"{named('rank', ranks)} and one rank differ in where NaN or infinity is"
        case RanksDiffer(ranks, axes):
            place = f"; copies differ over {_axes(axes)}" if axes else ""
            return f"{_ranks(ranks, 'has', 'have')} other values{place}"
        case NotUpdated(ranks):
            return f"the optimizer of {named('rank', ranks)} does not have it, or leaves it as it was"
        case NormOf(names, axes, is_missing):
            how = "does not add" if is_missing else "adds once a rank"
            return f"{how} the squares of {_names(names)} over {_axes(axes)}"
        case NormOfOneRank(names, axes):
            return f"adds the squares of {_names(names)} of one rank of {_axes(axes)} alone"
        case NormWithout(names):
            return f"leaves out {_names(names)}"
        case NotClipped(coefficient):
            return f"the coefficient {coefficient:g} of clipping is not applied"
        case OtherCoefficient(coefficients, expected, norm):
            listed = ", ".join(f"rank {r}: {c:g}" for r, c in coefficients.items())
            text = f"clipped by another coefficient than {expected:g} ({listed})"
            return text if norm is None else f"{text}: the norm {cause_text(norm)}"
        case Decided(ranks, expected):
            return f"{_ranks(ranks, 'differs', 'differ')} from one rank, which made {expected}"
        case NotLoaded():
            return (
                "is as in a new training: the checkpoint lacks it, or it is not loaded"
            )
        case Misplaced(order) if cause.is_one_part:
            return f"all {len(order)} parts are copies of part {order[0]}"
        case Misplaced(order):
            listed = ", ".join(map(str, order))
            return f"parts are at wrong places: the right parts {listed} in this order"
        case NotContinued():
            return "differs after loading, though all that was loaded is right"
    return "differs, and no known mistake explains it"


def _ranks(ranks: tuple[int, ...], one: str, several: str) -> str:
    """Return ranks with a verb."""
    return f"{named('rank', ranks)} {one if len(ranks) == 1 else several}"


def remedy(finding: WrongQuantity) -> str:
    """Return what to change."""
    match finding.cause:
        case OtherCoefficient(_, _, norm) if norm is not None:
            return remedy(replace(finding, cause=norm))
        case LacksSum(axes, _):
            return f"reduce these gradients over {_axes(axes)}, or mark them as partial there"
        case ReducedOver(_, right, _):
            if not right:
                return "do not reduce these gradients: ranks own different parts"
            return f"reduce these gradients over {_axes(right)} alone"
        case OwnParts():
            return "let ranks share the statistics, as SyncBatchNorm does, or mean this function"
        case TermsWeighted():
            return "divide each term of the loss by its own count"
        case RanksDiffer() if finding.quantity is Quantity.START:
            return (
                "give all ranks the same values: build with one seed, or broadcast them"
            )
        case NotUpdated():
            return "give these parameters to the optimizer"
        case Scaled(factor, _, True) if factor > 1:
            return "unscale gradients before they are clipped or read"
        case Scaled(is_scale=True):
            return "multiply the loss by the scale, or leave gradients as they are"
        case Scaled(factor):
            word = "divide" if factor > 1 else "multiply"
            return f"{word} by the right number; look where the divisor comes from"
        case Weighted(_, True):
            return "divide the sum of all tokens' losses by the number of all tokens"
        case MicroBatchesWeighted():
            return (
                "keep the gradients of all micro-batches until the step: finish and clear them "
                "after the last one"
            )
        case RanksDiffer(_, axes) if axes and finding.quantity is Quantity.NORM:
            return (
                f"let all ranks of {_axes(axes)} use one norm: all-reduce its squares"
            )
        case NormOf(_, axes, is_missing):
            if is_missing:
                return f"all-reduce the squares over {_axes(axes)} before the root"
            return f"count the squares of one rank of {_axes(axes)} alone"
        case NormOfOneRank(_, axes):
            return f"count all ranks' parts: they are no copies of one another over {_axes(axes)}"
        case NormWithout(names):
            return f"add the squares of {_names(names)}"
        case NotClipped() | OtherCoefficient():
            return "clip the parameters' gradients on all ranks by one norm"
        case Decided():
            return "let all ranks decide together: all-reduce what was found before the step"
        case NotCleared():
            return "call zero_grad() after each step"
        case NotLoaded():
            return "save and load it: " + _HELD.get(
                finding.quantity, "the listed values"
            )
        case Misplaced() if finding.cause.is_one_part:
            return "save the part of each rank, and not of one"
        case Misplaced():
            return "save whole tensors, or the place of each part; split them by the new mesh"
        case NotContinued():
            return (
                "save what the step keeps beside them: a counter, a schedule, a sampler"
            )
    return "compare the listed values with those of one rank"


def _number(axes: Iterable[frozenset[str]], *, is_number_of_parts: bool) -> str:
    """Return what a factor is the number of; "" where it is no such number."""
    ways = [f"of ranks of {each}" for each in sorted(map(_axes, axes))]
    ways += ["of micro-batches"] if is_number_of_parts else []
    return f"the number {' or '.join(ways)}" if ways else ""


def _axes(axes: Iterable[str]) -> str:
    return " and ".join(f"`{axis}`" for axis in sorted(axes))


def _names(names: Iterable[str]) -> str:
    listed = [*names]
    more = len(listed) - _MAX_NAMES
    text = ", ".join(listed[:_MAX_NAMES])
    return f"{text}, and {more} more" if more > 0 else text


def _shown(value: torch.Tensor | None) -> str:
    if value is None:
        return "none"
    flat: list[Any] = value.flatten()[:3].tolist()
    listed = ", ".join(f"{each:.6g}" for each in flat)
    dots = ", ..." if value.numel() > len(flat) else ""
    return f"[{listed}{dots}]"
