"""The mistakes behind the values that differ.

Note [Functions with a wrong backward]
    A wrong backward makes all gradients wrong that lie behind one of its inputs, and no others: what is
    nearer to the loss is right. So a user-made function may be the reason if exactly the wrong gradients
    lie behind some of its inputs. Another step, such as a wrong reduction, would have to hit exactly these.
"""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from itertools import groupby

import torch

from syncverify.judge.whole_step import causes
from syncverify.judge.whole_step.copies import copy_cause
from syncverify.judge.whole_step.differences import TOLERANCE, ComparedValue, size_of
from syncverify.judge.whole_step.factors import axes_with
from syncverify.judge.whole_step.gradient_causes import (
    added_bias,
    gradient_causes,
    grouped,
)
from syncverify.judge.whole_step.mesh_play import Known, MeshPlay
from syncverify.judge.whole_step.norm_causes import clip_causes, norm_cause
from syncverify.judge.whole_step.own_values import by_own_values
from syncverify.judge.whole_step.unread import unread
from syncverify.judge.whole_step.values import (
    AppliedFunction,
    NamedTensors,
    Quantity,
    RankValues,
    parameter_of,
)

# Values that follow from earlier ones of a rank are known exactly: any difference is a mistake.
_EXACT = (Quantity.STATE, Quantity.PARAMETER)
# Causes that a mistake elsewhere may have.
_OPEN = (causes.Unexplained, causes.RanksDiffer)


def findings(
    values: Iterable[ComparedValue], play: MeshPlay
) -> list[causes.WrongQuantity]:
    """Return the mistakes behind values that differ, of all values in the order of the steps."""
    found, follows = list[causes.WrongQuantity](), list[Quantity]()
    for (step, quantity), listed in groupby(values, lambda e: (e.step, e.quantity)):
        every = [*listed]
        wrong = [each for each in every if each.wrong_ranks]
        if not wrong:
            continue
        if not found:
            found = [*_spread(_mistakes(wrong, len(every), play, play.start(step)))]
            continue
        new = _independent(wrong, len(every), play, found)
        found += new
        follows += [] if new else [quantity]
    ordered = tuple(each for each in Quantity if each in follows)
    return [replace(found[0], follows=ordered), *found[1:]] if found else []


def _mistakes(
    wrong: Sequence[ComparedValue], total: int, play: MeshPlay, start: NamedTensors
) -> list[causes.WrongQuantity]:
    quantity, step = wrong[0].quantity, wrong[0].step
    known = play.known(step, start)
    if quantity is Quantity.GRADIENT:
        found = gradient_causes(wrong, known)
        is_open = all(isinstance(each, _OPEN) for each, _ in found)
        if is_open and (bias := added_bias(wrong, play, start)) is not None:
            found = [(bias, [*wrong])]
    elif quantity is Quantity.STEPPED:
        found = clip_causes(wrong, known)
    else:
        found = grouped((each, _cause(each, known)) for each in wrong)
    return [
        causes.WrongQuantity(quantity, step, cause, tuple(listed), total)
        for cause, listed in found
    ]


def _independent(
    wrong: list[ComparedValue],
    total: int,
    play: MeshPlay,
    found: Sequence[causes.WrongQuantity],
) -> list[causes.WrongQuantity]:
    """Return mistakes that the earlier ones do not explain, and that are not among them."""
    quantity, step = wrong[0].quantity, wrong[0].step
    if quantity in _EXACT and any(each.quantity in _EXACT for each in found):
        return []
    # Gradients of parameters that the optimizer leaves may pile up.
    left = (each for each in found if isinstance(each.cause, causes.NotUpdated))
    not_updated = {name for each in left for name in each.names}
    wrong = [each for each in wrong if parameter_of(each.name) not in not_updated]
    # By which each step multiplies a gradient.
    factors = {
        name: each.cause.factor
        for each in found
        if each.quantity is Quantity.GRADIENT and isinstance(each.cause, causes.Scaled)
        for name in each.names
    }
    unexplained = by_own_values(play, wrong, factors)
    ignored = unread(unexplained, play.ranks)
    unexplained = [each for each in unexplained if each not in ignored]
    if not unexplained:
        return []
    start = play.own_start(step) if step else None
    return [
        each
        for each in _mistakes(unexplained, total, play, start or play.start(step))
        if quantity in _EXACT or not isinstance(each.cause, _OPEN)
        if not any(each.is_same(other) for other in found)
    ]


def _spread(found: Sequence[causes.WrongQuantity]) -> Iterator[causes.WrongQuantity]:
    """Join values that no mistake explains with the mistake that they follow.

    A part of a sum that is missing flows back to the layers before: their gradients differ over
    the same axis, and no factor repairs them. Clipping that is not seen multiplies all
    gradients by a number that one wrong gradient changes.
    """
    rest = list[causes.WrongQuantity]()
    roots = [each for each in found if not _may_follow(each)]
    for each in filter(_may_follow, found):
        for index, root in enumerate(roots):
            if _explains(root.cause, each.cause):
                spread = (*root.spread, *each.differences)
                roots[index] = replace(root, spread=spread)
                break
        else:
            rest.append(each)
    every = [*roots, *rest]
    unexplained = [e for e in every if isinstance(e.cause, causes.Unexplained)]
    yield from (e for e in every if not isinstance(e.cause, causes.Unexplained))
    if unexplained:
        values = tuple(value for each in unexplained for value in each.differences)
        yield replace(unexplained[0], cause=causes.Unexplained(), differences=values)


def _may_follow(found: causes.WrongQuantity) -> bool:
    match found.cause:
        case causes.RanksDiffer() | causes.Unexplained():
            return found.quantity is Quantity.GRADIENT
        case causes.OtherCoefficient(norm=None):
            return found.quantity is Quantity.STEPPED
    return False


def _explains(root: causes.StepMistake, other: causes.StepMistake) -> bool:
    if isinstance(root, causes.LacksSum) and isinstance(other, _OPEN):
        return bool(other.axes) and other.axes <= root.axes
    return isinstance(other, causes.OtherCoefficient)


def _cause(found: ComparedValue, known: Known) -> causes.StepMistake:
    play, ranks = known.play, tuple(found.wrong_ranks)
    match found.quantity:
        case Quantity.NORM | Quantity.RETURNED if found.name == "norm":
            return norm_cause(found, known)
        case Quantity.SKIPPED:
            steps = next(iter(found.expected.values()))
            return causes.Decided(ranks, int(steps))
        case Quantity.STATE | Quantity.PARAMETER:  # its gradient is right
            is_frozen = found.name in play.reference.values.frozen
            if all((found.name in play.ranks[r].frozen) != is_frozen for r in ranks):
                return causes.OtherlyFrozen(ranks, not is_frozen)
            if (option := _other_option(found, play)) is not None:
                return option
            if found.quantity is Quantity.PARAMETER and _is_as_before(found, play):
                return causes.NotUpdated(ranks)
    return copy_cause(found, known.layout)


def _is_as_before(found: ComparedValue, play: MeshPlay) -> bool:
    """Tell whether the optimizer's step left a parameter as it was, on all wrong ranks."""
    pairs = [
        (found.got[r], play.ranks[r].parameters_before(found.step).get(found.name))
        for r in found.wrong_ranks
    ]
    return all(
        ours is not None and theirs is not None and torch.equal(ours, theirs)
        for ours, theirs in pairs
    )


def _other_option(found: ComparedValue, play: MeshPlay) -> causes.OtherOption | None:
    """Return the first option of a parameter that differs from one rank's on all wrong ranks."""
    parameter, step = parameter_of(found.name), found.step
    steps = (play.ranks[r].steps[step] for r in found.wrong_ranks)
    by_rank = [each.options_of(parameter) for each in steps]
    plain = play.reference.values.steps[step].options.get(parameter, {})
    for name, expected in plain.items():
        values = [each.get(name, expected) for each in by_rank]
        if any(value == expected for value in values):
            continue
        starts = [each.steps[0].options_of(parameter).get("lr") for each in play.ranks]
        is_left = name == "lr" and play.leaves_schedule and values[0] in starts
        axes = frozenset[frozenset[str]]()
        numbers = [e for e in (values[0], expected) if isinstance(e, int | float)]
        if not is_left and len(numbers) == 2 and min(numbers) > 0:
            axes = axes_with(play.layout, numbers[0] / numbers[1])
        return causes.OtherOption(name, values[0], expected, axes, is_left)
    return None


def with_functions(
    finding: causes.WrongQuantity,
    found: Iterable[causes.WrongQuantity],
    ranks: Sequence[RankValues],
) -> causes.WrongQuantity:
    """Return a mistake with the functions that may make it; as it was if none fits, or it is another.

    See Note [Functions with a wrong backward]. `found` has all mistakes of its play, and `ranks` the values of that play, with its functions.
    """
    if not isinstance(finding.cause, causes.Unexplained):
        return finding
    quantity, step = finding.quantity, finding.step
    wrong = [e for e in found if (e.quantity, e.step) == (Quantity.GRADIENT, step)]
    fitting = [
        dict.fromkeys(
            (each.name, each.lines)
            for each in values.steps[step].functions
            if _fits(each, names, _shown_by(values, step) - _wrong_on(rank, wrong))
        )
        for rank, values in enumerate(ranks if quantity is Quantity.GRADIENT else ())
        if (names := _wrong_on(rank, [finding]))
    ]
    first, *others = fitting or [{}]
    on_all = tuple(each for each in first if all(each in other for other in others))
    return replace(finding, cause=replace(finding.cause, functions=on_all))


def _wrong_on(rank: int, found: Iterable[causes.WrongQuantity]) -> frozenset[str]:
    values = (value for e in found for value in (*e.differences, *e.spread))
    return frozenset(each.name for each in values if rank in each.wrong_ranks)


def _shown_by(values: RankValues, step: int) -> frozenset[str]:
    """Return the gradients of a rank that show a wrong backward above them: zeros may stay zeros."""
    sizes = {n: size_of(v) for n, v in values.tensors(Quantity.GRADIENT, step).items()}
    smallest = TOLERANCE * max(sizes.values(), default=0.0)
    return frozenset(name for name, size in sizes.items() if size > smallest)


def _fits(
    function: AppliedFunction, wrong: frozenset[str], right: frozenset[str]
) -> bool:
    """Tell whether exactly the wrong gradients lie behind some inputs, and some gradient is right."""
    behind = (each for each in function.behind if not each & right)
    explained = frozenset[str]().union(*(each & wrong for each in behind))
    return bool(right) and explained == wrong
