"""The values of a mesh beside those of one rank."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from fnmatch import fnmatchcase
from functools import cached_property
from typing import Final

import torch

from syncverify.calling import call
from syncverify.errors import UsageError
from syncverify.judge.whole_step.layout import Layout, Own
from syncverify.judge.whole_step.lower_noise import LOWER_FACTOR
from syncverify.judge.whole_step.noise import NOISE_FACTOR
from syncverify.judge.whole_step.rounding import Roundings
from syncverify.judge.whole_step.values import (
    NamedTensors,
    Quantity,
    RankValues,
    parameter_of,
)

# Right programs in float64 were at most 1.7e-14 off; planted defects at least 0.065.
TOLERANCE: Final = 1e-12
# The tolerance of a small tensor is that of a tensor with this part of the largest one's size.
_SMALL: Final = 1e-3
# Values that matter on ranks alone whose optimizer has the parameter.
_GRADIENTS: Final = (Quantity.GRADIENT, Quantity.STEPPED)
# Rounding changes none of these in a training that does not overflow.
_EXACT: Final = (Quantity.START, Quantity.SCALE, Quantity.SKIPPED)


@dataclass(frozen=True)
class ComparedValue:
    """One value of a mesh beside that of one rank.

    Attributes:
        quantity: Kind of the value.
        step: Number of the step, from 0.
        name: Name of the parameter, or of the value.
        got: The value by rank; None where a rank has none.
        expected: The value that each rank should have, by rank.
        tolerance: Largest difference of an element that rounding explains.
        is_exact: Whether rounding is far smaller than any mistake: in float64.
        is_judged: Whether a mistake of a factor of 2 would be seen.
        is_by_own: Whether it should have this value by the rank's own earlier values.
    """

    quantity: Quantity
    step: int
    name: str
    got: Mapping[int, torch.Tensor | None]
    expected: Mapping[int, torch.Tensor]
    tolerance: float = 0.0
    is_exact: bool = True
    is_judged: bool = True
    is_by_own: bool = False

    @property
    def slack(self) -> float:
        """Largest difference of a repaired value that rounding explains beside 1e-9."""
        return 0.0 if self.is_exact else self.tolerance

    @property
    def relative_slack(self) -> float:
        """The slack as a part of the largest right element."""
        size = max(map(_size, self.expected.values()))
        return self.slack / size if self.slack and size else 0.0

    @cached_property
    def wrong_ranks(self) -> list[int]:
        """The ranks whose value differs."""
        return [
            rank
            for rank, value in self.got.items()
            if not is_close(value, self.expected[rank], self.tolerance)
        ]

    @property
    def error(self) -> float:
        """Largest difference of an element, as a part of the largest right element.

        Right elements that are no larger than rounding have no size: then it is a part of the
        largest element that a rank has.
        """
        size = max(_size(each) for each in self.expected.values())
        if size <= self.tolerance:
            size = max([size, *(_size(each) for each in self.got.values())])
        return max(self._differences(), default=size or 1.0) / (size or 1.0)

    @property
    def share_of_rounding(self) -> float:
        """Largest difference of an element, as a part of the tolerance."""
        largest = max(self._differences(), default=0.0)
        return largest / self.tolerance if largest else 0.0

    def _differences(self) -> list[float]:
        """Return the largest difference of an element, of each rank that has a value."""
        return [
            _largest_difference(value, self.expected[rank])
            for rank, value in self.got.items()
            if value is not None and value.shape == self.expected[rank].shape
            if value.numel()
        ]


@dataclass(frozen=True, slots=True)
class OneRank:
    """The values of one rank.

    Attributes:
        values: Values of the plain training.
        noisy: Plays the same training again, once for each rounding noise, and returns the values
            of these plays. Values that are close without noise need no such play.
        unit: Relative difference that counts as rounding.
        roundings: How the training on the mesh rounds; None if all of it is in float64.
        skips: Steps that the scaler skips, since a value overflows on the mesh.
        computed_in: Dtype of the values; None for that of the training.
    """

    values: RankValues
    noisy: Callable[[], Sequence[RankValues]] = tuple
    unit: float = TOLERANCE
    roundings: Roundings | None = None
    skips: frozenset[int] = frozenset()
    computed_in: torch.dtype | None = None

    def tensors(self, quantity: Quantity, step: int) -> NamedTensors:
        """Return the tensors of a quantity."""
        return _of(self.values, quantity, step)

    def bounded(
        self, found: ComparedValue, quantity: Quantity, step: int
    ) -> ComparedValue:
        """Return a value with its tolerance: rounding noise counts where it is needed.

        Args:
            found: The value, with any tolerance.
            quantity: The quantity of one rank that it has to be.
            step: The step of that quantity.
        """
        if self.roundings is not None:
            return self._bounded_in(self.roundings, found, quantity, step)
        near = replace(found, tolerance=self._rounding(quantity, step, found.name))
        if not near.wrong_ranks:
            return near
        noise = NOISE_FACTOR * self._noise(quantity, step, found.name)
        return replace(near, tolerance=near.tolerance + noise)

    def _rounding(self, quantity: Quantity, step: int, name: str) -> float:
        """Return the difference of an element that counts as rounding."""
        tensors = self.tensors(quantity, step)
        largest = max((_size(each) for each in tensors.values()), default=0.0)
        return self.unit * max(_size(tensors[name]), _SMALL * largest)

    def _noise(self, quantity: Quantity, step: int, name: str) -> float:
        """Return the largest difference of an element between a play with noise and without."""
        value = self.tensors(quantity, step)[name]
        assert value is not None
        others = [_of(each, quantity, step).get(name) for each in self.noisy()]
        if _show_nothing(others):
            return torch.inf
        return max((_distance(each, value) for each in others), default=0.0)

    def _bounded_in(
        self, roundings: Roundings, found: ComparedValue, quantity: Quantity, step: int
    ) -> ComparedValue:
        """Return a value with the tolerance of lower dtypes."""
        value = self.tensors(quantity, step)[found.name]
        assert value is not None
        plays = [_of(each, quantity, step).get(found.name) for each in self.noisy()]
        if _show_nothing(plays):
            return replace(found, tolerance=torch.inf, is_exact=False, is_judged=False)
        bound = self._rounding(quantity, step, found.name)
        bound += LOWER_FACTOR * _spread(plays, value)
        if quantity is Quantity.START:
            bound += roundings.update.unit * _size(value)
        # Half of a value is off by half of its size, of which rounding may hide a part.
        size = self._size_of_change(quantity, step, found.name)
        is_judged = quantity in _EXACT or 3 * bound <= size or not size
        return replace(found, tolerance=bound, is_exact=False, is_judged=is_judged)

    def _size_of_change(self, quantity: Quantity, step: int, name: str) -> float:
        """Return the size of a value; of a parameter after a step, that of its change."""
        value, before = self.tensors(quantity, step)[name], None
        if quantity is Quantity.PARAMETER:
            tensors = self.tensors(quantity, step - 1) if step else self.values.start
            before = tensors.get(name)
        if value is None or before is None:
            return _size(value)
        return _distance(value, before)


def compared(
    ranks: Sequence[RankValues],
    reference: OneRank,
    layout: Layout,
    own: Own,
    *,
    decision_only: bool = False,
) -> Iterator[ComparedValue]:
    """Yield all values that can be compared, in the order in which the steps make them.

    Args:
        ranks: Values of each rank.
        reference: Values of one rank.
        layout: Names and sizes of the mesh axes.
        own: Axes over which an ordinary tensor of a rank is a shard.
        decision_only: Whether gradients are no numbers, so that only the decision to skip
            can be compared.
    """
    yield from _of_quantity(
        Quantity.START, 0, ranks=ranks, reference=reference, layout=layout, own=own
    )
    for step in range(len(reference.values.steps)):
        decides = decision_only or step in reference.skips
        listed = _quantities(ranks, reference, step, decision_only=decides)
        for quantity in listed:
            yield from _of_quantity(
                quantity, step, ranks=ranks, reference=reference, layout=layout, own=own
            )


def _quantities(
    ranks: Sequence[RankValues],
    reference: OneRank,
    step: int,
    *,
    decision_only: bool,
) -> Iterator[Quantity]:
    """Yield the quantities that mean the same on the mesh and on one rank."""
    if decision_only:
        yield from (Quantity.SKIPPED, Quantity.SCALE, Quantity.PARAMETER)
        return
    clips = bool(reference.tensors(Quantity.NORM, step))
    is_seen = all(each.steps[step].tensors[Quantity.NORM] for each in ranks)
    for quantity in (each for each in Quantity if each is not Quantity.START):
        # Clipping by the user's code is not seen: only the optimizer's gradients are.
        if quantity is not Quantity.GRADIENT or is_seen or not clips:
            yield quantity


def _of_quantity(
    quantity: Quantity,
    step: int,
    ranks: Sequence[RankValues],
    reference: OneRank,
    layout: Layout,
    own: Own,
) -> Iterator[ComparedValue]:
    listed = [_of(each, quantity, step) for each in ranks]
    for name, value in reference.tensors(quantity, step).items():
        others = left_to_others(name, ranks, step) if quantity in _GRADIENTS else ()
        got = {
            rank: each[name]
            for rank, each in enumerate(listed)
            if name in each and rank not in others
        }
        if value is None or not got:
            continue
        expected = {
            rank: piece(name, value, layout=layout, rank=rank, own=own, got=got[rank])
            for rank in got
        }
        found = ComparedValue(quantity, step, name, got, expected)
        yield reference.bounded(found, quantity, step)


def left_to_others(name: str, ranks: Sequence[RankValues], step: int) -> set[int]:
    """Return the ranks whose optimizers leave a parameter to those of other ranks.

    With ZeRO-1, each rank's optimizer has some of the parameters, and sends them afterwards.
    """
    updating = {r for r, each in enumerate(ranks) if name in each.steps[step].updated}
    return {*range(len(ranks))} - updating if updating else set()


def piece(
    name: str,
    value: torch.Tensor,
    layout: Layout,
    rank: int,
    own: Own,
    got: torch.Tensor | None,
) -> torch.Tensor:
    """Return the part of a whole tensor that a rank has.

    Raises:
        UsageError: The rank's tensor has another shape, and nothing says why.
    """
    is_as_whole = got is not None and got.shape == value.shape
    if is_as_whole and not own_axes(name, own):
        return value
    coordinate, sizes = layout.coordinate(rank), dict(layout.axes)
    if callable(own):
        values = {
            "name": name,
            "whole": value,
            "coordinate": coordinate,
            "sizes": sizes,
        }
        value = call(own, values)
    for axis, dim in own_axes(name, own).items():
        if axis in sizes and value.dim() > dim:
            value = value.chunk(sizes[axis], dim)[coordinate[axis]]
    # A shard that got no token has no gradient: then its part of the whole one is zero.
    if got is not None and value.shape != got.shape:
        raise UsageError(
            f"{name} has shape {tuple(got.shape)} on rank {rank} of {layout}, and "
            f"{tuple(value.shape)} was expected; say in `own` which axis splits it, such as "
            f"own={{{name!r}: {{'ep': 0}}}}"
        )
    return value


def own_axes(name: str, own: Own) -> Mapping[str, int]:
    """Return the axes over which an ordinary tensor is split, with their dimensions."""
    if callable(own):
        return {}
    parameter = parameter_of(name)
    return next((axes for key, axes in own.items() if fnmatchcase(parameter, key)), {})


def is_close(
    value: torch.Tensor | None, expected: torch.Tensor, tolerance: float
) -> bool:
    """Tell whether no element differs by more than the tolerance; None is zeros, NaN equals NaN."""
    if value is None:
        return not expected.any()
    if value.shape != expected.shape:
        return False
    both = (value.double(), expected.double())
    return torch.allclose(*both, rtol=0.0, atol=tolerance, equal_nan=True)


def _of(values: RankValues, quantity: Quantity, step: int) -> NamedTensors:
    if quantity is Quantity.START:
        return values.start
    return values.steps[step].tensors.get(quantity, {})


def _size(value: torch.Tensor | None) -> float:
    if value is None or not value.numel():
        return 0.0
    size = float(value.double().abs().nan_to_num(0.0, 0.0, 0.0).max())
    return size


def _largest_difference(one: torch.Tensor, two: torch.Tensor) -> float:
    """Return the largest difference of an element; infinity where one alone is no number."""
    ours, theirs = one.double(), two.double()
    is_same = (ours == theirs) | (ours.isnan() & theirs.isnan())
    off = (ours - theirs).abs().masked_fill(is_same, 0.0)
    largest = float(off.nan_to_num(torch.inf, torch.inf).max())
    return largest


def _distance(one: torch.Tensor | None, two: torch.Tensor) -> float:
    return 0.0 if one is None else _size(one.double() - two.double())


def _show_nothing(plays: Sequence[torch.Tensor | None]) -> bool:
    """Tell whether plays with noise lack a value, such as that of a copy that noise hides."""
    return bool(plays) and all(each is None for each in plays)


def _spread(plays: Sequence[torch.Tensor | None], value: torch.Tensor) -> float:
    """Return the largest root mean square of an element's differences."""
    squares = [_off(each, value).square() for each in plays if each is not None]
    return float(torch.stack(squares).mean(0).sqrt().max()) if squares else 0.0


def _off(one: torch.Tensor, two: torch.Tensor) -> torch.Tensor:
    """Return a difference; infinity where only one of both is a number."""
    both_lack = ~(one.isfinite() | two.isfinite())
    off = one.double() - two.double()
    return off.masked_fill(both_lack, 0.0).nan_to_num(torch.inf, torch.inf, torch.inf)
