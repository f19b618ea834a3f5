"""Causes of a wrong gradient that equals no known mistake: a factor, rounding, a part, counts.

Note [Which rounding is a sum's]
    Any small error is within the bound of some sum in some dtype. So sums are computed:

    - The micro-batches of a rank are added up exactly or in the narrow dtype, in their order.
    - The ranks are added up exactly or in the narrow dtype, all at once or over two axes in turn,
      in several orders. Each element has an order of its own, since a ring sums each part in
      another order.
    - Sums of some ranks wait in the narrow dtype for those of the next micro-batch.
    - A mean divides before or after.

    An error is called rounding if such a sum has it.

Note [Elements found elsewhere]
    Gradients of a rank often lie in one buffer. A wrong offset puts elements of one parameter,
    or of another part of the same one, into a gradient, and Inf where none belongs. So elements
    that are wrong are looked up among all right elements of the rank. One number may be found
    there by chance: with k numbers to find, and n different fractions in a dtype, each lookup
    succeeds by chance with at most k/n. The chance that all do has to be small. Inf and NaN
    prove nothing, for an overflow may spread. Elements of the same gradient in another order
    are no wrong offset: those are strides.
"""

import functools
import itertools
import math
from collections.abc import Callable, Iterable, Iterator, Sequence
from fractions import Fraction
from typing import Final

import torch

from syncverify.judge.reference import ExpectedGradient, RightElement
from syncverify.judge.violation import Cause
from syncverify.scenario.layout import ranks_along, reduce_axes

_POWERS = [Fraction(2) ** power for power in (-1, 1, -2, 2, -3, 3, -4, 4)]
_NARROW_DTYPES = (torch.float32, torch.float16, torch.bfloat16)
_BITS_OF_FLOAT64 = 53
_MAX_PERMUTED = 4  # of more ranks only rings are tried, not all orders
_MAX_CHANCE: Final = 0.001  # of elements that are found elsewhere
_MAX_NUMEL: Final = 2**17  # one number after the other is looked up: more take minutes
_NAN: Final = "nan"  # which equals itself
_Round = Callable[[torch.Tensor], torch.Tensor]


def likeliest(expected: ExpectedGradient, observed: torch.Tensor) -> Cause:
    """Return the likeliest cause of a finite value that no explanation equals."""
    exact = observed.to(torch.float64)
    return (
        _scaled(expected, exact)
        or _rounded(expected, exact)
        or _partly_wrong(expected, observed)
        or _miscounted(expected, exact)
        or _scaled_by_power(expected, exact)
        or Cause("unexplained", "no known defect gives this value")
    )


def _scaled(expected: ExpectedGradient, observed: torch.Tensor) -> Cause | None:
    """Find a common factor; elements of one magnitude would fit any factor."""
    value = expected.value()
    if value.abs().unique().numel() < 2:
        return None
    ratio = (observed / value).reshape(-1)
    if not torch.equal(ratio, ratio[:1].expand_as(ratio)):
        return None
    factor = Fraction(ratio[0].item()).limit_denominator(1000)
    text = f"every element is multiplied by {factor}"
    used = expected.divisor / factor if factor > 0 else Fraction()
    if expected.divisor > 1 and used.denominator == 1 and used:
        text += f", as if the sum were divided by {used}, and not by {expected.divisor}"
    return Cause("scaled", text)


def _scaled_by_power(
    expected: ExpectedGradient, observed: torch.Tensor
) -> Cause | None:
    """Find a small power of two as a factor, which a gradient of one magnitude may have, too."""
    for factor in _POWERS:
        if torch.equal(observed, expected.value() * float(factor)):
            text = f"it is multiplied by {factor}, which no number of the scenario explains"
            return Cause("scaled", text)
    return None


def _rounded(expected: ExpectedGradient, observed: torch.Tensor) -> Cause | None:
    """Find narrower dtypes in which a sum of so many contributions errs by so much."""
    own = torch.finfo(getattr(torch, expected.spec.effective_grad_dtype))
    num_terms = len(expected.ranks) * expected.count
    if not num_terms:
        return None
    # Contributions to an element mostly have the same sign: then this is the relative error.
    error = ((observed - expected.value()) / expected.magnitude()).abs().max().item()
    is_wrong = observed != expected.value()
    names = [
        info.dtype
        for info in map(torch.finfo, _NARROW_DTYPES)
        if info.eps > own.eps
        and error <= num_terms * info.eps / 2
        and not is_wrong[_is_exact_in(expected, info)].any()
        and _is_narrow_sum(expected, observed, getattr(torch, info.dtype))
    ]
    if not names:
        return None
    return Cause("rounded", f"it is rounded, as if summed in {' or '.join(names)}")


def _is_exact_in(expected: ExpectedGradient, info: torch.finfo) -> torch.Tensor:
    """Tell which elements a dtype sums without rounding: multiples of a number within its bits."""
    divisor = expected.divisor
    if divisor & (divisor - 1):  # a third has no end in binary digits
        return torch.zeros_like(expected.value(), dtype=torch.bool)
    # No partial sum is larger than that of the magnitudes. Parts that are divided first have as
    # many digits as the sum.
    largest, unit = expected.magnitude() * divisor, _common_unit(expected)
    least = info.smallest_normal * info.eps * divisor
    return (largest <= unit * (2 / info.eps)) & (largest <= info.max) & (unit >= least)


def _common_unit(expected: ExpectedGradient) -> torch.Tensor:
    """Return the largest power of two that divides all contributions to each element."""
    parts = torch.stack([expected.part(rank, [m]) for rank, m in expected.terms()])
    mantissa, exponent = torch.frexp(parts)
    digits = torch.ldexp(mantissa, torch.tensor(_BITS_OF_FLOAT64)).to(torch.int64)
    lowest = torch.ldexp((digits & -digits).double(), exponent - _BITS_OF_FLOAT64)
    is_number = parts.isfinite() & (parts != 0)
    return torch.where(is_number, lowest, math.inf).amin(dim=0)


def _partly_wrong(expected: ExpectedGradient, observed: torch.Tensor) -> Cause | None:
    value = expected.value().reshape(-1)
    wrong = (observed.to(torch.float64).reshape(-1) != value).nonzero().reshape(-1)
    if len(wrong) == len(value):
        return None
    first, last = int(wrong[0]), int(wrong[-1])
    flat = observed.reshape(-1)[wrong]
    own = expected.part(expected.rank).reshape(-1)[wrong]
    holds = "wrong values"
    if torch.equal(flat, own.to(flat.dtype)):
        holds = f"rank {expected.rank}'s own, unreduced gradient"
    elif not flat.any():
        holds = "zeros"
    text = f"elements {first}..{last} of {len(value)} (flattened) hold {holds}"
    return Cause("partly_wrong", text)


def _miscounted(expected: ExpectedGradient, observed: torch.Tensor) -> Cause | None:
    """Solve for the number of times that each (rank, micro-batch) was counted."""
    keys = list(itertools.product(expected.comparable(), range(expected.count)))
    if not keys:
        return None
    parts = [expected.part(r, [m]).reshape(-1) / expected.divisor for r, m in keys]
    columns = torch.stack(parts, dim=1)
    if columns.shape[0] < columns.shape[1]:
        return None
    weights = torch.linalg.lstsq(columns, observed.reshape(-1, 1)).solution.round()
    if not torch.equal((columns @ weights).reshape(observed.shape), observed):
        return None
    wrong = [
        f"micro-batch {m} of rank {rank} counted {int(count)} times instead of {owed}"
        for (rank, m), count in zip(keys, weights.reshape(-1), strict=True)
        if int(count) != (owed := int(rank in expected.ranks))
    ]
    return Cause("miscounted", "; ".join(wrong))


def _is_narrow_sum(
    expected: ExpectedGradient, observed: torch.Tensor, dtype: torch.dtype
) -> bool:
    """Return whether some way to sum and divide in a dtype gives a value, given in float64.

    See Note [Which rounding is a sum's].
    """
    narrow = functools.partial(_narrow, dtype)
    own: torch.dtype = getattr(torch, expected.spec.effective_grad_dtype)
    divided = (_divided(e, expected.divisor, narrow) for e in _sums(expected, narrow))
    return any(
        torch.stack([e.to(own).double() == observed for e in values]).any(dim=0).all()
        for values in itertools.chain.from_iterable(divided)
    )


def _narrow(dtype: torch.dtype, value: torch.Tensor) -> torch.Tensor:
    return value.to(dtype).double()


def divided_each_time(
    expected: ExpectedGradient, by: int, dtype: torch.dtype, *, with_last: bool
) -> Iterator[list[torch.Tensor]]:
    """Yield sums in a dtype, of which each micro-batch divides all that has accumulated.

    Each list has the orders of one way to sum over the ranks. With `with_last`, a micro-batch is
    added before the division, and else after it.
    """
    narrow = functools.partial(_narrow, dtype)
    local = dict[int, torch.Tensor]()
    for rank in expected.ranks:
        local[rank] = torch.zeros_like(expected.part(rank))
        for m in range(expected.count):
            more = expected.part(rank, [m])
            if with_last:
                local[rank] = narrow(narrow(local[rank] + more) / by)
            else:
                local[rank] = narrow(narrow(local[rank] / by) + more)
    yield from _over_ranks(expected, local, narrow)


def _sums(expected: ExpectedGradient, narrow: _Round) -> Iterator[list[torch.Tensor]]:
    """Yield sums over micro-batches and ranks; each list has the orders of one way to sum."""
    yield from _deferred(expected, narrow)
    by, exact, rounded = expected.divisor, {}, {}
    for rank in expected.ranks:
        parts = [expected.part(rank, [m]) for m in range(expected.count)]
        exact[rank] = torch.stack(parts).sum(dim=0)
        rounded[rank] = _summed(map(narrow, parts), narrow)
    factor = _reciprocal(by, narrow)
    for local in (exact, rounded):
        yield from _over_ranks(expected, local, narrow)
        if by > 1:
            divided = {rank: narrow(value / by) for rank, value in local.items()}
            multiplied = {rank: value * factor for rank, value in local.items()}
            for early in (divided, multiplied):
                for sums in _over_ranks(expected, early, narrow):
                    # Undo the division: `_divided` divides again where it was not early.
                    yield [each * by for each in sums]


def _summed(values: Iterable[torch.Tensor], narrow: _Round) -> torch.Tensor:
    """Add up values in their order, and round each sum."""
    return functools.reduce(lambda one, other: narrow(one + other), values)


def _reciprocal(by: int, narrow: _Round) -> torch.Tensor:
    return narrow(torch.tensor(1 / by, dtype=torch.float64))


def _deferred(
    expected: ExpectedGradient, narrow: _Round
) -> Iterator[list[torch.Tensor]]:
    """Yield sums over groups of ranks that wait in the dtype for those of later micro-batches.

    Groups are equally large. They have neighbors, or ranks at equal distances.
    """
    ranks, count = expected.ranks, len(expected.ranks)
    if expected.count == 1:
        return
    for size in (n for n in range(1, count + 1) if count % n == 0):
        neighbors = [ranks[first : first + size] for first in range(0, count, size)]
        apart = [ranks[first :: count // size] for first in range(count // size)]
        for groups in (neighbors, apart):
            waiting = list[torch.Tensor]()
            for group in groups:
                parts = [expected.total(group, [m]) for m in range(expected.count)]
                waiting.append(_summed(map(narrow, parts), narrow))
            yield [torch.stack(waiting).sum(dim=0)]
            yield [*_orders(waiting, narrow)]


def _divided(
    sums: list[torch.Tensor], by: int, narrow: _Round
) -> Iterator[list[torch.Tensor]]:
    yield [value / by for value in sums]
    if by > 1:
        factor = _reciprocal(by, narrow)
        yield [narrow(value / by) for value in sums]
        yield [narrow(value * factor) for value in sums]
        yield [value * factor for value in sums]


def _over_ranks(
    expected: ExpectedGradient, local: dict[int, torch.Tensor], narrow: _Round
) -> Iterator[list[torch.Tensor]]:
    values = [local[rank] for rank in expected.ranks]
    yield [torch.stack(values).sum(dim=0)]
    yield [*_orders(values, narrow)]
    mesh = expected.mesh()
    axes = reduce_axes(expected.reference.scenario.mesh, expected.spec)
    if len(axes) != 2:
        return
    for first in axes:
        groups = {ranks_along(mesh, (first,), rank) for rank in expected.ranks}
        if {*itertools.chain(*groups)} != {*expected.ranks}:
            return
        legs = [[local[rank] for rank in group] for group in sorted(groups)]
        exact = [torch.stack(leg).sum(dim=0) for leg in legs]
        yield [*_orders(exact, narrow)]
        # One order for each leg: all combinations of orders are too many.
        rounded = [next(_orders(leg, narrow)) for leg in legs]
        yield [torch.stack(rounded).sum(dim=0)]
        yield [*_orders(rounded, narrow)]


def _orders(values: Sequence[torch.Tensor], narrow: _Round) -> Iterator[torch.Tensor]:
    """Yield narrow sums of the same values in several orders, and of one rounding."""
    rounded = [narrow(value) for value in values]
    indices = range(len(values))
    orders = (
        itertools.permutations(indices)
        if len(values) <= _MAX_PERMUTED
        else ([*indices[n:], *indices[:n]] for n in indices)
    )
    for order in orders:
        summed = [rounded[index] for index in order]
        yield _summed(summed, narrow)
        if len(summed) == _MAX_PERMUTED:
            one, other, third, fourth = summed
            yield narrow(narrow(one + other) + narrow(third + fourth))
    yield narrow(torch.stack(rounded).sum(dim=0))
    yield narrow(torch.stack([*values]).sum(dim=0))


def displaced(
    expected: ExpectedGradient, observed: torch.Tensor, *, is_proof: bool = True
) -> Cause | None:
    """Return the cause if all wrong elements are right ones of the rank; zeros may be padding.

    As a proof, a finite element of another parameter has to be found, and more than by chance.
    Huge gradients are not looked through.
    """
    if observed.numel() > _MAX_NUMEL:
        return None
    flat = [_key(each) for each in observed.reshape(-1).tolist()]
    value = [_key(e) for e in expected.value().to(observed.dtype).reshape(-1).tolist()]
    places = _places(expected, observed.dtype)
    pairs = enumerate(zip(flat, value, strict=True))
    wrong = [index for index, (seen, right) in pairs if seen != right]
    found = {index: places[flat[index]] for index in wrong if flat[index] in places}
    if not found or any(flat[index] and index not in found for index in wrong):
        return None
    moved = (index for index, place in found.items() if place[1] != expected.spec.name)
    telling = [index for index in moved if observed.reshape(-1)[index].isfinite()]
    chance = min(1.0, len(places) * torch.finfo(observed.dtype).eps / 2)
    if is_proof and (not telling or chance ** len(telling) > _MAX_CHANCE):
        return None
    first, others = (telling or [*found])[0], len(wrong) - 1
    number, parameter = found[first]
    text = f"its element {first} has the value of element {number} of {parameter!r}"
    more = f", and {others} more are not in their places either" if others else ""
    return Cause("misplaced", text + more)


def _key(number: float) -> float | str:
    return number if number == number else _NAN  # only NaN differs


def _places(
    expected: ExpectedGradient, dtype: torch.dtype
) -> dict[float | str, RightElement]:
    """Return a place by the value that belongs there; zeros are everywhere."""
    oracle, rank, step = expected.reference, expected.rank, expected.step
    is_local = expected.ranks == (rank,)
    moment = rank, step, expected.count if is_local else None, dtype
    if moment in oracle.owners:
        return oracle.owners[moment]
    places = oracle.owners[moment] = dict[float | str, RightElement]()
    for spec in oracle.scenario.trainable:
        forms = [oracle.reduced(spec, rank, step)]
        if is_local:  # both forms may be there
            forms = [oracle.local(spec, rank, step, range(expected.count)), *forms]
        for value in forms:
            for index, number in enumerate(value.to(dtype).reshape(-1).tolist()):
                if number:
                    places.setdefault(_key(number), (index, spec.name))
    return places
