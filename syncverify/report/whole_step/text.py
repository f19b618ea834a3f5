"""A comparison with one rank as text."""

import math
from collections import Counter
from collections.abc import Iterable, Iterator

from syncverify.faces.whole_step import data
from syncverify.faces.whole_step.outcome import FoundMistake, LayoutPlay, Parity
from syncverify.faces.whole_step.training import Beside, Variation
from syncverify.judge.whole_step.causes import CopiesRoundedApart, WrongQuantity
from syncverify.judge.whole_step.rounding import dtype_names
from syncverify.judge.whole_step.values import Quantity
from syncverify.plain_text import counted, named
from syncverify.report.account import count_of_violations, titled
from syncverify.report.whole_step.cause_words import words_of
from syncverify.report.whole_step.shown import (
    grouped_names,
    printed,
    shown_part,
    shown_ranks,
    some_names,
)

_SMALLEST_PERCENT, _WHOLE_PERCENTS = 0.001, 0.1
# Groups of names in the first line of a mistake.
_MAX_NAMES = 3
# Kinds of values with the names of their parameters.
_NAMED = {
    Quantity.START: "parameter {} before the first step",
    Quantity.GRADIENT: "gradient of {}",
    Quantity.STEPPED: "gradient of {} that the optimizer reads",
    Quantity.RETURNED: "{}, which the step returns",
    Quantity.STATE: "state of the optimizer {}",
    Quantity.PARAMETER: "parameter {} after the step",
    Quantity.LOADED: "parameter {} after loading",
    Quantity.LOADED_STATE: "state of the optimizer {} after loading",
    Quantity.LOADED_RATE: "learning rate of {} after loading",
}

# By a field of a play: what is said of the values that it names, and of its layout.
_NAMES_UNSHOWN = {
    "zero": "not shown: {}: gradients are zero on one rank in all steps; make more steps, or other "
    "data",
    "returned_apart": "not judged: {}, which the step returns: ranks of {} may return values of "
    "their own parts",
    "unread": "note: gradients of {} differ on ranks of {}, and no parameter depends on these: other "
    "ranks update them",
    "late": "not compared: {} after the last step of {}: the forward of a next step would gather "
    "them; make one step more",
    "absent": "not compared: {}: no rank has a parameter of this name",
    "added": "not compared: {}: build() makes no such parameter",
}


def table(parity: Parity) -> list[str]:
    """Return the block that lists the layouts, with what was not judged; none without layouts."""
    lines = [f"  {played.layout!s:<24} {play_words(played)}" for played in parity.plays]
    if not lines:
        return []
    unclipped = list[str]()
    for played in parity.unclipped:
        assert played.unclipped is not None
        norm, limit = played.unclipped.norm, played.unclipped.max_norm
        unclipped.append(
            f"  not shown: clipping on {played.layout} never clipped: norms up to "
            f"{printed(norm, limit)}, max_norm {printed(limit, norm)}; take a smaller max_norm"
        )
    notes = dict.fromkeys([*_unshown(parity.plays), *unclipped, *unjudged(parity)])
    return ["\n".join(["layouts:", *lines, *notes])]


def _unshown(plays: Iterable[LayoutPlay]) -> Iterator[str]:
    """Yield notes on the values of which the plays show less than of others, or nothing."""
    for played in plays:
        layout = played.layout
        if not played.is_split:
            yield (
                f"  note: all ranks of {layout} have the same rows: no axis splits the "
                "batch. Say in `split` if one does"
            )
        for names, text in _NAMES_UNSHOWN.items() if played.variation is None else ():
            if listed := getattr(played, names):
                yield f"  {text.format(some_names(listed), layout)}"
        for each in played.unexplained:
            first = each.differences[0]
            rank, part = first.wrong_ranks[0], shown_part(first)
            yield (
                f"  not judged: with gradients of all ones, the {each.quantity.value} of "
                f"{layout} is {part.text(first.got[rank])}, and not "
                f"{part.text(first.expected[rank])}: another norm, or a mistake"
            )
        yield from _of_lower_dtypes(played)


def _of_lower_dtypes(played: LayoutPlay) -> Iterator[str]:
    """Yield the values in which rounding may hide a mistake."""
    if (roundings := played.roundings) is None:
        return
    if roundings.scalar_dtypes:
        yield (
            f"  note: scalars of {played.layout} are in {dtype_names(roundings.scalar_dtypes)}, "
            "and values have the bound of its rounding"
        )
    if values := played.not_judged:
        by_quantity = Counter(each.quantity.value for each in values)
        listed = ", ".join(f"{count} of {name}" for name, count in by_quantity.items())
        yield (
            f"  not judged: {counted(len(values), 'value')} of {played.layout}: "
            f"rounding of {roundings.names} may hide a factor of 2 there ({listed})"
        )


def unjudged(parity: Parity) -> Iterator[str]:
    """Yield the limits of a comparison of an own step with itself."""
    if parity.beside is None:
        return
    tried = (each.variation for each in parity.plays if each.is_tried)
    has_ones = any(isinstance(each, data.AllOnes) for each in tried)
    beside = ", other than in norm, clipping and clearing" if has_ones else ""
    yield (
        f"  not judged: a mistake that is in all layouts alike{beside}: an own step is compared "
        "with itself alone. Pass `loss`, and torch's plain step is the reference"
    )
    numbers = {each.num_micro_batches for each in parity.plays}
    if len(numbers) == 1 and (number := numbers.pop()) > 1:
        yield (
            f"  not judged: whether the number of micro-batches counts: it is always {number}. "
            f"Say micro_batches=(1, {number})"
        )
    if parity.why_not_alone:
        yield f"  not judged: one rank: {parity.why_not_alone}"


def _variation_text(variation: Variation) -> str:
    match variation:
        case data.UnequalTokens(key):
            return f"ranks have unequal numbers of tokens ({key!r} is 0 for the others)"
        case data.EmptyPart(key):
            return f"the last micro-batch is padding ({key!r} is 0)"
        case data.AllOnes():
            return "all elements of gradients are one number"
        case data.NotFinite(is_local=True):
            return "the scaled loss is infinity on the ranks with the last part of the batch alone"
        case data.NotFinite(name, value):
            return f"{value} in the last element of the gradient of {name}, before unscaling"
    return variation.word


def play_words(played: LayoutPlay) -> str:
    """Return the verdict of a play, after its number of micro-batches and its data."""
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
    values = counted(played.num_values, "value")
    if played.is_right:
        share = played.share_of_rounding
        off = f"off by at most {percent(share)} of what rounding explains"
        return f"{parts}: right, {values}, {off if share else 'all equal'}"
    if played.findings and not played.num_wrong:
        return f"{parts}: WRONG, copies differ between ranks; {values} are right within rounding"
    if not played.num_wrong:
        return f"{parts}: WRONG, a race or a mismatch; {values} are right"
    return (
        f"{parts}: WRONG, {played.num_wrong} of {values} differ, "
        f"by up to {percent(played.worst_error)}"
    )


def percent(share: float) -> str:
    """Return a part of a whole, such as `35 %` or `3.2 %`; a smaller part is 0.1 %, and not 0."""
    if math.isinf(share):
        return "infinity or NaN"
    share = max(share, _SMALLEST_PERCENT) if share else 0.0
    return f"{100 * share:.{0 if share >= _WHOLE_PERCENTS else 1}f} %"


def _why_not_tried(variation: Variation | None) -> str:
    match variation:
        case data.AllOnes():
            return "parameters are clipped apart, or autograd and FSDP2 do not make each gradient"
        case data.NotFinite(is_local=True):
            return "the step does not call scale() and unscale_() of the scaler"
    return "the step does not call unscale_() of the scaler"


def verdict(parity: Parity) -> str:
    """Return the last line: the verdict, and the layouts and steps that were compared."""
    layouts = {each.layout for each in parity.plays}
    scope = f"{counted(len(layouts), 'layout')}, {counted(parity.num_steps, 'step')}"
    if parity.refused and not parity.mistakes and not parity.num_violations:
        return f"NOT SIMULATED: {parity.name} ({scope}): {parity.refused}"
    unfinished = sum(1 for each in parity.plays if each.left_early)
    wrong = len(parity.mistakes) + parity.num_violations + unfinished
    return f"{count_of_violations(wrong)}: {parity.name} ({scope}, seed {parity.seed})"


def sections_of(parity: Parity, found: FoundMistake) -> Iterator[list[str] | str]:
    """Yield the lines of a mistake below its summary."""
    finding = found.finding
    if found.variation is not None:
        yield f"  data:       {_variation_text(found.variation)}"
    yield titled("values:", _values(parity, found))
    odd, agreeing = parity.differing(found), parity.agreeing()
    if odd and agreeing:
        word = "differs" if len(odd) == 1 else "differ"
        count = "the other" if len(agreeing) == 1 else f"the {len(agreeing)} others"
        listed = "; ".join(_setup(each, parity) for each in agreeing)
        who = " and ".join(_setup(each, parity) for each in odd)
        yield f"  odd one:    {who} {word} from {count}: {listed}"
    if finding.spread:
        yield f"  spreads:    to {some_names(each.name for each in finding.spread)}"
    if finding.follows:
        yield f"  follows:    {', '.join(each.value for each in finding.follows)}"
    others = [str(each) for each in found.layouts if each != found.layout]
    if others:
        yield f"  also in:    {'; '.join(others)}"
    smaller = [f"{name}={size}" for name, size in found.sizes]
    if found.num_rows is not None:
        smaller.append(f"{counted(found.num_rows, 'row')} of the batch")
    if smaller:
        yield f"  smallest:   {', '.join(smaller)}"


def _values(parity: Parity, found: FoundMistake) -> Iterator[str]:
    """Yield how many values are wrong, and the first one by rank beside the right one."""
    names = [each.name for each in found.finding.differences]
    count = f"{len(names)} of {found.finding.num_values}"
    is_listed = len(grouped_names(names)) <= _MAX_NAMES  # in the first line
    yield count if is_listed else f"{count}: {some_names(names)}"
    first = found.finding.differences[0]
    part, wrong = shown_part(first), first.wrong_ranks
    are_copies = isinstance(found.finding.cause, CopiesRoundedApart)
    right_mark, wrong_mark = ("equal", "differs") if are_copies else ("right", "wrong")
    for rank in shown_ranks(first):
        mark = right_mark if rank not in wrong else wrong_mark
        yield f"{first.name} on rank {rank}: {part.text(first.got[rank])} ({mark})"
    yield f"{_place(parity, found)}: {part.text(first.expected[wrong[0]])}"


def _place(parity: Parity, found: FoundMistake) -> str:
    """Return where the right value comes from; of copies, that of the first rank."""
    if isinstance(found.finding.cause, CopiesRoundedApart):
        return f"on rank {min(found.finding.differences[0].got)}"
    if isinstance(found.variation, data.AllOnes):
        return "in closed form"
    first = found.finding.differences[0]
    if first.is_by_own:
        return f"right after rank {first.wrong_ranks[0]}'s own earlier values"
    return f"on {_setup(parity.beside, parity) if parity.beside else 'one rank'}"


def _setup(setup: Beside, parity: Parity) -> str:
    numbers = {each.num_micro_batches for each in parity.plays}
    if len(numbers) == 1:
        return str(setup.layout)
    return f"{setup.layout} with {_micro_batches(setup.num_micro_batches)}"


def _micro_batches(number: int) -> str:
    return counted(number, "micro-batch").replace("chs", "ches")


def headline(found: FoundMistake) -> str:
    """Return a mistake in one line: the wrong values, the cause, and the place."""
    finding, layout = found.finding, str(found.layout)
    if found.saved_on is not None:
        layout = f"saved on {found.saved_on}, loaded on {layout}"
    if found.num_micro_batches > 1:
        layout = f"{layout}, {_micro_batches(found.num_micro_batches)}"
    wrong = wrong_ranks(finding)
    is_all = len(wrong) == found.layout.num_ranks
    ranks = "all ranks" if is_all else named("rank", wrong)
    names = some_names((each.name for each in finding.differences), _MAX_NAMES)
    what = _NAMED.get(finding.quantity, finding.quantity.value).format(names)
    meaning = words_of(finding.cause, finding.quantity).meaning
    return f"{what}: {meaning} ({layout}, step {finding.step + 1}, {ranks})"


def wrong_ranks(finding: WrongQuantity) -> list[int]:
    """Return the ranks with a wrong value."""
    return sorted({rank for each in finding.differences for rank in each.wrong_ranks})


def change(found: FoundMistake) -> str:
    """Return the change that repairs a mistake, and the lines where it may be."""
    text = words_of(found.finding.cause, found.finding.quantity).hint
    return f"{text} ({', '.join(map(str, found.places))})" if found.places else text
