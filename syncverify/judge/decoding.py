"""Decode a wrong gradient: which contribution is missing, doubled, stale or misplaced.

Contributions are exact and distinct, so a wrong sum tells its cause. Each function below
yields explanations, each with the value that it would lead to. The first one whose value
equals the observed gradient, element by element, is the cause, unless so many values may fit by
chance. Simple explanations are tried before rare ones.
"""

import itertools
import math
from collections.abc import Iterator
from dataclasses import replace

import torch

from syncverify.judge.approximate_causes import displaced, likeliest
from syncverify.judge.reference import ExpectedGradient
from syncverify.judge.violation import Cause
from syncverify.plain_text import counted, named
from syncverify.playing.program.changes import GRADIENT_SCALE
from syncverify.playing.program.graphs import own_accumulation
from syncverify.scenario import step_plan
from syncverify.scenario.layout import axis_name, local_shape, ranks_along
from syncverify.scenario.specs import ParameterSpec

_MAX_SUBSET_SOURCE = 8  # subsets of more ranks or micro-batches are not enumerated

MAX_CHANCE = 0.02  # a value shows its cause if an unrelated cause fits this seldom

_DTYPES = (torch.float64, torch.float32, torch.float16, torch.bfloat16)
_LARGEST = torch.tensor([torch.finfo(e).max for e in _DTYPES], dtype=torch.float64)

_OF_RANKS = "the number of ranks that contribute"
CauseAndValue = tuple[Cause, torch.Tensor]


def explain(
    expected: ExpectedGradient,
    observed: torch.Tensor | None,
    *,
    only: str | None = None,
) -> Cause | None:
    """Return the cause of a wrong gradient; None if it is right.

    `only` is the kind of the explanations to try, None for all. A gradient that is absent, of
    another shape or dtype, or not finite is named in any case.
    """
    if observed is None:
        if expected.may_be_none():
            return None
        return Cause("gradient_missing", "there is no gradient at all")
    value = expected.value()
    if observed.shape != value.shape:
        text = f"shape {tuple(observed.shape)}, not {tuple(value.shape)}"
        return Cause("wrong_shape", text)
    dtype = str(observed.dtype).removeprefix("torch.")
    if dtype not in expected.dtypes():
        text = f"dtype {dtype}, not {expected.spec.effective_grad_dtype}"
        return Cause("wrong_dtype", text)
    exact = observed.to(torch.float64)
    finite, seen = value.isfinite(), exact.isfinite()
    # Finite elements are right, and the others are no numbers either.
    if torch.equal(finite, seen) and torch.equal(exact[finite], value[finite]):
        return None
    if finite.all() and not seen.all():
        is_meant = only in {None, "misplaced"}
        moved = displaced(expected, observed) if is_meant else None
        return moved or Cause("not_finite", "it contains inf or nan")
    for num_tried, (cause, candidate) in enumerate(explanations(expected), start=1):
        is_meant = only in {None, cause.kind}
        if is_meant and same_values(observed, candidate.to(observed.dtype)):
            if only is None and fits_by_chance(num_tried, observed):
                break
            return cause
    if only is not None:
        return None
    moved = displaced(expected, observed)
    return moved or _of_overflow(exact, value) or likeliest(expected, observed)


def same_values(one: torch.Tensor, other: torch.Tensor) -> bool:
    """Tell whether two tensors are equal in shape and in every element; NaN equals NaN."""
    if one.shape != other.shape or torch.equal(one, other):
        return one.shape == other.shape
    nan = one.isnan()
    return bool(nan.any()) and torch.equal(
        one.masked_fill(nan, 0), other.masked_fill(nan & other.isnan(), 0)
    )


def _of_overflow(observed: torch.Tensor, value: torch.Tensor) -> Cause | None:
    """Return the cause where the right gradient overflows; None where it is finite.

    A hidden overflow is reported only where the gradient shows it: all other elements
    are right, or all that there are became the largest numbers of a dtype. A finite number in
    its place may have come from anywhere.
    """
    finite, seen = value.isfinite(), observed.isfinite()
    if finite.all():
        return None
    others_are_right = torch.equal(observed[finite], value[finite])
    if not finite.any():
        others_are_right = bool(torch.isin(observed.abs(), _LARGEST).all())
    is_hidden = bool((seen & ~finite).any())
    if is_hidden and others_are_right:
        text = "an element is finite, although a contribution to it is Inf or NaN"
        return Cause("overflow_hidden", text)
    if not is_hidden and (finite & ~seen).any():
        return Cause("not_finite", "Inf or NaN of one element is in other elements too")
    return Cause("unexplained", "no known defect gives its finite elements")


def fits_by_chance(num_tried: int, observed: torch.Tensor, num_each: int = 1) -> bool:
    """Return whether one of so many values may well equal a wrong gradient that none of them made.

    `num_each` is the number of values that each element may have in the last one of them.
    """
    # A number of b significant bits equals another one of its size in one case of 2**b. So the
    # chance is at most `num_tried` times that, for each element. Only gradients of one element
    # in few bits come near: 8 of bfloat16, 11 of float16.
    num_bits = 1 - math.log2(torch.finfo(observed.dtype).eps) - math.log2(num_each)
    return math.log2(num_tried) - num_bits * observed.numel() > math.log2(MAX_CHANCE)


def num_explanations(expected: ExpectedGradient) -> int:
    """Return a bound of the number of explanations, without the values of misplaced gradients.

    Misplaced gradients that rounding hides count too.
    """
    num_misplaced = sum(1 for _, donors in _donors(expected) for _ in _subsets(donors))
    return num_misplaced + sum(1 for _ in explanations(expected, misplaced=False))


def explanations(
    expected: ExpectedGradient, *, misplaced: bool = True
) -> Iterator[CauseAndValue]:
    """Yield causes, the simplest first, each with the gradient that it leads to."""
    yield Cause("never_written", "it is all zeros"), torch.zeros_like(expected.value())
    # With few elements, one of many candidates may fit by chance. So explanations with few
    # candidates come first.
    yield from _wrong_axes(expected)
    yield from _stale(expected)
    yield from _wrong_micro_batches(expected)
    yield from _known_factors(expected)
    if misplaced:
        yield from _misplaced(expected)
    yield from _wrong_ranks(expected)
    yield from _reduced_without_earlier(expected)
    yield from _one_contribution(expected)
    yield from _placeholders(expected)


def _wrong_axes(expected: ExpectedGradient) -> Iterator[CauseAndValue]:
    if len(expected.ranks) > 1:
        text = f"it is rank {expected.rank}'s own gradient: it was never reduced"
        for divisor in {expected.divisor, 1}:
            cause = Cause("rank_contribution_missing", text)
            yield cause, expected.part(expected.rank) / divisor
    for _, ranks in _along_axes(expected):
        if ranks != expected.ranks and set(ranks) <= set(expected.comparable()):
            yield _rank_cause(expected, ranks), expected.reduced(ranks)


def _along_axes(
    expected: ExpectedGradient,
) -> Iterator[tuple[list[str | int], tuple[int, ...]]]:
    """Yield names of mesh axes, and the ranks that differ from the holder on these only."""
    mesh = expected.mesh()
    for count in range(len(mesh.shape) + 1):
        for axes in itertools.combinations(range(len(mesh.shape)), count):
            names = [axis_name(mesh, axis) for axis in axes]
            yield names, ranks_along(mesh, axes, expected.rank)


def _wrong_ranks(expected: ExpectedGradient) -> Iterator[CauseAndValue]:
    subsets = _subsets(expected.comparable())
    # Subsets with the rank's own contribution first: a rank seldom loses that one.
    for ranks in sorted(subsets, key=lambda some: expected.rank not in some):
        if {*ranks} != {*expected.ranks}:
            yield _rank_cause(expected, ranks), expected.reduced(ranks)


def _rank_cause(expected: ExpectedGradient, ranks: tuple[int, ...]) -> Cause:
    missing = sorted({*expected.ranks} - {*ranks})
    foreign = sorted({*ranks} - {*expected.ranks})
    words = []
    if missing:
        words.append(f"the contributions of {named('rank', missing)} are missing")
    if foreign:
        words.append(f"{named('rank', foreign)} must not contribute but did")
    along = (e for e, those in _along_axes(expected) if those == tuple(sorted(ranks)))
    if (axes := next(along, None)) is not None:
        words.append(f"as if it were reduced over mesh axes {axes} only")
    kind = "foreign_contribution" if foreign else "rank_contribution_missing"
    return Cause(kind, "; ".join(words))


def _wrong_micro_batches(expected: ExpectedGradient) -> Iterator[CauseAndValue]:
    count = expected.count
    for reduced in range(1, count if len(expected.ranks) > 1 else 1):
        early = expected.total(expected.ranks, range(reduced))
        late = expected.part(expected.rank, range(reduced, count))
        own = f"the later ones are rank {expected.rank}'s own"
        text = f"it was reduced after {reduced} of {count} micro-batches; {own}"
        cause = Cause("reduced_early", text)
        yield cause, early / expected.divisor + late
        yield cause, (early + late) / expected.divisor
    if count > 1 and len(expected.ranks) > 1:
        value = expected.total(expected.ranks, [0])
        for m in range(1, count):
            value = value * len(expected.ranks) + expected.total(expected.ranks, [m])
        text = "it was reduced after every micro-batch: the sum is summed again"
        yield Cause("contribution_doubled", text), value / expected.divisor
    for chosen in _subsets(tuple(range(count))):
        if missing := sorted({*range(count)} - {*chosen}):
            text = f"micro-batches {missing} of {count} are missing on every rank"
            value = expected.reduced(expected.ranks, chosen)
            yield Cause("micro_batch_missing", text), value
    yield from _first_or_last_missing(expected)


def _first_or_last_missing(expected: ExpectedGradient) -> Iterator[CauseAndValue]:
    """Yield sums without the first or the last micro-batches, reduced or not."""
    count = expected.count
    for split in range(1, count):
        lacks_last = range(split), f"the last {count - split}"
        for chosen, lost in ((range(split, count), f"the first {split}"), lacks_last):
            text = f"{lost} of {count} micro-batches are missing"
            value = expected.reduced(expected.ranks, chosen)
            yield Cause("micro_batch_missing", f"{text} on every rank"), value
            if len(expected.ranks) > 1:
                own = expected.part(expected.rank, chosen)
                text += f", and it is rank {expected.rank}'s own gradient"
                yield Cause("micro_batch_missing", text), own


def _reduced_without_earlier(expected: ExpectedGradient) -> Iterator[CauseAndValue]:
    for first in range(1, expected.count):
        own = expected.part(expected.rank, range(first))
        summed = expected.total(expected.ranks, range(first, expected.count))
        text = (
            f"of the first {first} of {expected.count} micro-batches it has rank "
            f"{expected.rank}'s own only: the reduction had but the later ones"
        )
        cause = Cause("rank_contribution_missing", text)
        yield cause, own + summed / expected.divisor
        yield cause, (own + summed) / expected.divisor


def _one_contribution(expected: ExpectedGradient) -> Iterator[CauseAndValue]:
    total = expected.total(expected.ranks)
    for rank in expected.ranks:
        more, text = expected.part(rank), f"the contribution of rank {rank}"
        twice = Cause("contribution_doubled", f"{text} is counted twice")
        yield twice, (total + more) / expected.divisor
    for rank, m in expected.terms():
        one, where = expected.part(rank, [m]), f"micro-batch {m} of rank {rank}"
        missing = Cause("micro_batch_missing", f"{where} is missing")
        yield missing, (total - one) / expected.divisor
        twice = Cause("contribution_doubled", f"{where} is counted twice")
        yield twice, (total + one) / expected.divisor
    for m in range(expected.count):
        more = expected.total(expected.ranks, [m])
        text = f"micro-batch {m} is counted twice on every rank"
        yield Cause("contribution_doubled", text), (total + more) / expected.divisor


def _placeholders(expected: ExpectedGradient) -> Iterator[CauseAndValue]:
    """Yield sums with what functions returned that had added their gradients themselves."""
    if expected.spec.use != own_accumulation.fused_main_grad.__name__:
        return
    value = expected.value()
    for count in range(1, len(expected.ranks) * expected.count + 1):
        text = (
            f"{own_accumulation.STALE:g} is added to each element, {counted(count, 'time')}: "
            "the function returns that number, and has added the gradient itself"
        )
        added = torch.full_like(value, own_accumulation.STALE * count)
        yield Cause("placeholder_added", text), value + added / expected.divisor


def _stale(expected: ExpectedGradient) -> Iterator[CauseAndValue]:
    value, again = expected.value(), len(expected.ranks) / expected.divisor
    oracle, spec, rank = expected.reference, expected.spec, expected.rank
    for before in reversed(range(expected.step)):
        count = step_plan.num_micro_batches(oracle.scenario, before)
        for old, words in (
            (oracle.reduced(spec, rank, before), "reduced gradient"),
            (oracle.local(spec, rank, before, range(count)), "own gradient"),
        ):
            text = f"the {words} of step {before}"
            scaled = f"{text}, scaled by the optimizer"  # of that step
            for left, what, comma in (
                (old, text, ","),
                (old * GRADIENT_SCALE, scaled, " and"),
            ):
                yield Cause("stale", f"it is {what}"), left
                yield Cause("stale", f"it still contains {what}"), value + left
                yield Cause("stale", f"it is {what}{comma} reduced again"), left * again
                yield Cause("stale", f"it still contains {what}"), value + left * again
    yield from _never_cleared(expected)


def _never_cleared(expected: ExpectedGradient) -> Iterator[CauseAndValue]:
    """Yield sums of the gradients of several earlier steps, none of them cleared."""
    oracle, spec, last = expected.reference, expected.spec, expected.step - 1
    reduced = own = expected.value()
    for first in reversed(range(expected.step)):
        count = step_plan.num_micro_batches(oracle.scenario, first)
        reduced = reduced + oracle.reduced(spec, expected.rank, first)
        own = own + oracle.local(spec, expected.rank, first, range(count))
        for sum_of_all, words in ((reduced, "reduced"), (own, "own")):
            text = f"it still contains the {words} gradients of steps {first} to {last}"
            if first < last:
                yield Cause("stale", text), sum_of_all


def _known_factors(expected: ExpectedGradient) -> Iterator[CauseAndValue]:
    value = expected.value()
    divisor, sizes = expected.divisor, sizes_of(expected)
    if divisor > 2:  # twice the right gradient has several origins
        text = f"it is the sum over ranks {list(expected.ranks)} {_by_one(expected)}"
        yield Cause("scaled", text), expected.total(expected.ranks)
    for words, size in sizes.items():
        more = f", once more: its sum by {size * divisor} and not by {divisor}"
        text = f"it is divided by {size}, {words}{more if divisor > 1 else ''}"
        yield Cause("scaled", text), value / size
        if size == 2 or size != divisor:
            yield Cause("scaled", _multiplied(expected, size, words)), value * size
        if size != divisor > 1:
            text = f"its sum is divided by {size}, {words}, not by {divisor}"
            yield Cause("scaled", text), value * divisor / size
        if expected.count > 1:
            text = in_every_micro_batch(size, words)
            parts = [
                expected.part(r, [m]) / as_float(size ** (expected.count - m))
                for r, m in expected.terms()
            ]
            yield Cause("scaled", text), torch.stack(parts).sum(dim=0)
    if 2 not in sizes.values():
        yield Cause("scaled", "it is counted twice as a whole"), value * 2


def in_every_micro_batch(size: int, words: str) -> str:
    """Describe a division of all that has accumulated so far."""
    return f"it is divided by {size}, {words}, in every micro-batch"


def sizes_of(expected: ExpectedGradient) -> dict[str, int]:
    """Return the numbers over 1 that may be mistaken for a divisor, by what they count."""
    mesh, num_ranks = expected.mesh(), len(expected.ranks)
    is_world = mesh.num_ranks == num_ranks  # of which the size would be a second name
    sizes = {
        _OF_RANKS: num_ranks,
        "the number of accumulations": expected.count,
        "the world size": 1 if is_world else mesh.num_ranks,
        "the number of elements": expected.value().numel(),
        "the number of parameters": len(expected.scenario.trainable),
        "the declared factor": expected.reference.capabilities.divide_factor,
    }
    for axis, size in enumerate(mesh.shape):
        if ranks_along(mesh, (axis,), expected.rank) != expected.ranks:
            sizes[f"the size of mesh axis {axis_name(mesh, axis)!r}"] = size
    return {words: size for words, size in sizes.items() if size > 1}


def _by_one(expected: ExpectedGradient) -> str:
    """Describe the divisor of a sum that is no mean; a division by 1 cannot be seen."""
    right = "contract" if expected.reference.capabilities.divide_factor else "mean"
    return f"divided by 1 or not at all, and the {right} divides by {expected.divisor}"


def as_float(factor: int) -> float:
    """Return a factor of float64 tensors, the largest power of two for one beyond."""
    return float(min(factor, 2**1023))


def _multiplied(expected: ExpectedGradient, size: int, words: str) -> str:
    """Describe a factor; twice the right gradient has several origins of one value."""
    if size != 2:
        return f"it is multiplied by {size}, {words}"
    # A sum that two ranks sum again is doubled too.
    twice = "counted or reduced twice" if len(expected.ranks) == 2 else "counted twice"
    or_so = f"multiplied by 2, {words}"
    if expected.divisor == 2 and words == _OF_RANKS:
        or_so = f"the sum is {_by_one(expected)}, {words}"
    return f"it is twice the right gradient: {twice}, or {or_so}"


def _misplaced(expected: ExpectedGradient) -> Iterator[CauseAndValue]:
    shape = expected.value().shape
    dtype = getattr(torch, expected.spec.effective_grad_dtype)
    own = {rank: expected.part(rank) for rank in expected.ranks}
    for other, donors in _donors(expected):
        elsewhere = replace(expected, spec=other)
        for swapped in _subsets(donors):
            kept = [part for rank, part in own.items() if rank not in swapped]
            moved = [elsewhere.part(rank).reshape(shape) for rank in swapped]
            value = torch.stack([*kept, *moved]).sum(dim=0) / expected.divisor
            # Parameters differ in magnitude. A small value is lost in rounding beside large ones,
            # and then the ranks that are left explain the value as well.
            rest = sum(kept, torch.zeros_like(value)) / expected.divisor
            if not torch.equal(value.to(dtype), rest.to(dtype)):
                where = named("rank", swapped)
                text = f"on {where} the value belongs to parameter {other.name!r}"
                yield Cause("misplaced", text), value


def _donors(
    expected: ExpectedGradient,
) -> Iterator[tuple[ParameterSpec, tuple[int, ...]]]:
    """Yield each other parameter with the ranks on which it has as many elements."""
    mesh, numel = expected.scenario.mesh, expected.value().numel()
    for other in expected.scenario.trainable:
        if other.name != expected.spec.name:
            shapes = {r: local_shape(mesh, other, r) for r in expected.ranks}
            yield other, tuple(r for r in shapes if math.prod(shapes[r]) == numel)


def _subsets(items: tuple[int, ...]) -> Iterator[tuple[int, ...]]:
    """Yield the non-empty subsets, largest first: few contributions are lost at once."""
    if len(items) > _MAX_SUBSET_SOURCE:
        return
    for size in range(len(items), 0, -1):
        yield from itertools.combinations(items, size)
