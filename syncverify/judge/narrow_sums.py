"""Sums in a narrower dtype, as a subject may have computed them.

Note [Which rounding is a sum's]
    Any small error is within the bound of some sum in some dtype. So sums are computed:

    - The micro-batches of a rank are added up exactly or in the narrow dtype, in their order.
    - The ranks are added up exactly or in the narrow dtype, all at once or over two axes in turn,
      in several orders. Each element has an order of its own, since a ring sums each part in
      another order.
    - Sums of some ranks wait in the narrow dtype for those of the next micro-batch.
    - A mean divides before or after.

    An error is called rounding if such a sum has it.
"""

from __future__ import annotations

import functools
import itertools
from collections.abc import Callable, Iterator, Sequence

import torch

from syncverify.judge.expected_gradient import ExpectedGradient
from syncverify.scenario.layout import ranks_along, reduce_axes

# Of more ranks only rings are tried, not all orders.
_MAX_PERMUTED = 4
Round = Callable[[torch.Tensor], torch.Tensor]


def is_narrow_sum(
    expected: ExpectedGradient, observed: torch.Tensor, dtype: torch.dtype
) -> bool:
    """Tell whether a value is a sum in a dtype; see Note [Which rounding is a sum's].

    Args:
        expected: The right gradient.
        observed: The value, in float64.
        dtype: The narrower dtype.

    Returns:
        Whether some way to sum and divide in that dtype gives the value in all elements.
    """

    def narrow(value: torch.Tensor) -> torch.Tensor:
        return value.to(dtype).double()

    own: torch.dtype = getattr(torch, expected.spec.effective_grad_dtype)
    for values in _sums(expected, narrow):
        for divided in _divided(values, expected.divisor, narrow):
            same = [(each.to(own).double() == observed) for each in divided]
            if torch.stack(same).any(dim=0).all():
                return True
    return False


def divided_each_time(
    expected: ExpectedGradient, by: int, dtype: torch.dtype, *, with_last: bool
) -> Iterator[list[torch.Tensor]]:
    """Yield sums in a dtype, of which each micro-batch divides all that has accumulated.

    Args:
        expected: The right gradient.
        by: The divisor.
        dtype: The dtype.
        with_last: Whether a micro-batch is added before the division, and not after it.

    Yields:
        The orders of one way to sum over the ranks.
    """

    def narrow(value: torch.Tensor) -> torch.Tensor:
        return value.to(dtype).double()

    def accumulated(local: torch.Tensor, more: torch.Tensor) -> torch.Tensor:
        if with_last:
            return narrow(narrow(local + more) / by)
        return narrow(narrow(local / by) + more)

    local = dict[int, torch.Tensor]()
    for rank in expected.ranks:
        parts = [expected.part(rank, [m]) for m in range(expected.count)]
        local[rank] = functools.reduce(accumulated, parts, torch.zeros_like(parts[0]))
    yield from _over_ranks(expected, local, narrow)


def _sums(expected: ExpectedGradient, narrow: Round) -> Iterator[list[torch.Tensor]]:
    """Yield sums over micro-batches and ranks; each list has the orders of one way to sum."""
    yield from _deferred(expected, narrow)
    for in_micro_batches, divides in itertools.product((False, True), repeat=2):
        by = expected.divisor if divides else 1
        local = {
            rank: _accumulated(expected, rank, narrow if in_micro_batches else None)
            for rank in expected.ranks
        }
        for scaled in _scaled(local, by, narrow):
            for sums in _over_ranks(expected, scaled, narrow):
                # Undo the division: `_divided` divides again where it was not early.
                yield [each * by for each in sums] if by > 1 else sums


def _deferred(
    expected: ExpectedGradient, narrow: Round
) -> Iterator[list[torch.Tensor]]:
    """Yield sums over groups of ranks that wait in the dtype for those of later micro-batches."""
    if expected.count == 1:
        return
    for groups in _groupings(expected.ranks):
        waiting = [
            functools.reduce(
                lambda one, other: narrow(one + other),
                [narrow(expected.total(group, [m])) for m in range(expected.count)],
            )
            for group in groups
        ]
        yield [torch.stack(waiting).sum(dim=0)]
        yield [*_orders(waiting, narrow)]


def _groupings(ranks: tuple[int, ...]) -> Iterator[list[tuple[int, ...]]]:
    """Yield groups of neighbors, and of ranks at equal distances, that are equally large."""
    count = len(ranks)
    for size in (n for n in range(1, count + 1) if count % n == 0):
        yield [ranks[first : first + size] for first in range(0, count, size)]
        yield [ranks[first :: count // size] for first in range(count // size)]


def _scaled(
    local: dict[int, torch.Tensor], by: int, narrow: Round
) -> Iterator[dict[int, torch.Tensor]]:
    if by == 1:
        yield local
        return
    factor = narrow(torch.tensor(1 / by, dtype=torch.float64))
    yield {rank: narrow(value / by) for rank, value in local.items()}
    yield {rank: value * factor for rank, value in local.items()}


def _divided(
    sums: list[torch.Tensor], by: int, narrow: Round
) -> Iterator[list[torch.Tensor]]:
    yield [value / by for value in sums]
    if by > 1:
        factor = narrow(torch.tensor(1 / by, dtype=torch.float64))
        yield [narrow(value / by) for value in sums]
        yield [narrow(value * factor) for value in sums]
        yield [value * factor for value in sums]


def _accumulated(
    expected: ExpectedGradient, rank: int, narrow: Round | None
) -> torch.Tensor:
    parts = [expected.part(rank, [m]) for m in range(expected.count)]
    if narrow is None:
        return torch.stack(parts).sum(dim=0)
    return functools.reduce(lambda one, other: narrow(one + other), map(narrow, parts))


def _over_ranks(
    expected: ExpectedGradient, local: dict[int, torch.Tensor], narrow: Round
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


def _orders(values: Sequence[torch.Tensor], narrow: Round) -> Iterator[torch.Tensor]:
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
        yield functools.reduce(lambda one, other: narrow(one + other), summed)
        if len(summed) == _MAX_PERMUTED:
            one, other, third, fourth = summed
            yield narrow(narrow(one + other) + narrow(third + fourth))
    yield narrow(torch.stack(rounded).sum(dim=0))
    yield narrow(torch.stack([*values]).sum(dim=0))
