"""The values of a mesh beside those of one rank."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Final

import torch

from syncverify.judge.whole_step.layout import Layout, Own
from syncverify.judge.whole_step.noise import NOISE_FACTOR
from syncverify.judge.whole_step.parts import pieces
from syncverify.judge.whole_step.rounding import Roundings
from syncverify.judge.whole_step.values import (
    ByRank,
    NamedTensors,
    Quantity,
    RankValues,
)

# Right programs in float64 were at most 1.7e-14 off; planted defects at least 0.065.
TOLERANCE: Final = 1e-12
# The tolerance of a small tensor is that of a tensor with this part of the largest one's size.
_SMALL: Final = 1e-3
# Values that matter on ranks alone whose optimizer has the parameter.
GRADIENTS: Final = (Quantity.GRADIENT, Quantity.STEPPED)
# Rounding changes none of these in a training that does not overflow.
_EXACT: Final = (Quantity.START, Quantity.SCALE, Quantity.SKIPPED)


@dataclass(frozen=True, eq=False)
class ComparedValue:
    """One value of a mesh beside that of one rank; steps count from 0. Each is equal to itself alone."""

    quantity: Quantity
    step: int
    name: str
    got: ByRank
    expected: Mapping[int, torch.Tensor]
    tolerance: float = 0.0  # largest difference of an element that rounding explains
    # Whether rounding is far smaller than any mistake: in float64.
    is_exact: bool = True
    is_judged: bool = True  # whether a mistake of a factor of 2 would be seen
    # Whether it should have this value by the rank's own earlier values.
    is_by_own: bool = False

    @property
    def slack(self) -> float:
        """Largest difference of a repaired value that rounding explains beside 1e-9."""
        return 0.0 if self.is_exact else self.tolerance

    @property
    def is_zero(self) -> bool:
        """Tell whether no rank has a number other than zero."""
        return not any(each is not None and each.any() for each in self.got.values())

    @property
    def relative_slack(self) -> float:
        """The slack as a part of the largest right element."""
        size = max(map(size_of, self.expected.values()))
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
        size = max(size_of(each) for each in self.expected.values())
        if size <= self.tolerance:
            size = max([size, *(size_of(each) for each in self.got.values())])
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
    """The values of one rank, of a plain training or of an own step."""

    values: RankValues
    # Plays the same training again, once for each rounding noise, and returns the values. Values
    # of float64 that are close without noise need no such play.
    noisy: Callable[[], Sequence[RankValues]] = tuple
    # How the training on the mesh rounds; None if all of it is in float64.
    roundings: Roundings | None = None
    # Steps that the scaler skips, since a value overflows on the mesh.
    skips: frozenset[int] = frozenset()
    # Dtype of the values; None for that of the training.
    computed_in: torch.dtype | None = None

    def tensors(self, quantity: Quantity, step: int) -> NamedTensors:
        """Return the tensors of a quantity."""
        return self.values.tensors(quantity, step)

    def bounded(
        self, found: ComparedValue, quantity: Quantity, step: int
    ) -> ComparedValue:
        """Return a value with its tolerance; see Note [The bound of rounding] in `noise.py`.

        Quantity and step are those of the value on one rank that it has to be.
        """
        tensors, roundings = self.tensors(quantity, step), self.roundings
        value = tensors[found.name]
        assert value is not None
        largest = max((size_of(each) for each in tensors.values()), default=0.0)
        bound = TOLERANCE * max(size_of(value), _SMALL * largest)
        near = replace(found, tolerance=bound, is_exact=roundings is None)
        if roundings is None and not near.wrong_ranks:
            return near
        plays = [each.tensors(quantity, step).get(found.name) for each in self.noisy()]
        if plays and all(each is None for each in plays):
            # A copy that noise hides shows nothing.
            return replace(near, tolerance=torch.inf, is_judged=roundings is None)
        lost = 0.0 if roundings is None else torch.inf
        bound += NOISE_FACTOR * _spread(plays, value, lost)
        if roundings is None:
            return replace(near, tolerance=bound)
        if quantity is Quantity.START:
            bound += roundings.update.unit * size_of(value)
        # Half of a value, or of a change of a parameter, is off by half of its size, of which
        # rounding may hide a part.
        is_parameter = quantity is Quantity.PARAMETER
        starts = self.values.parameters_before(step) if is_parameter else {}
        before = starts.get(found.name)
        size = size_of(value if before is None else value.double() - before.double())
        is_judged = quantity in _EXACT or 3 * bound <= size or not size
        return replace(near, tolerance=bound, is_judged=is_judged)


def compared(
    ranks: Sequence[RankValues],
    reference: OneRank,
    layout: Layout,
    own: Own,
    *,
    decision_only: bool = False,
) -> Iterator[ComparedValue]:
    """Yield all values that can be compared, in the order in which the steps make them.

    With `decision_only`, gradients are no numbers, so that only the decision to skip can be compared.
    """

    def of(quantity: Quantity, step: int) -> Iterator[ComparedValue]:
        listed = [each.tensors(quantity, step) for each in ranks]
        for name, value in reference.tensors(quantity, step).items():
            others = left_to_others(name, ranks, step) if quantity in GRADIENTS else ()
            got = {
                rank: each[name]
                for rank, each in enumerate(listed)
                if name in each and rank not in others
            }
            if value is not None and got:
                expected = pieces(name, value, got, layout=layout, own=own)
                found = ComparedValue(quantity, step, name, got, expected)
                yield reference.bounded(found, quantity, step)

    yield from of(Quantity.START, 0)
    for step in range(len(reference.values.steps)):
        listed = [each for each in Quantity if each is not Quantity.START]
        clips = bool(reference.tensors(Quantity.NORM, step))
        if decision_only or step in reference.skips:
            listed = [Quantity.SKIPPED, Quantity.SCALE, Quantity.PARAMETER]
        elif clips and not all(e.steps[step].tensors[Quantity.NORM] for e in ranks):
            # Clipping by the user's code is not seen: only the optimizer's gradients are.
            listed.remove(Quantity.GRADIENT)
        for quantity in listed:
            yield from of(quantity, step)


def left_to_others(name: str, ranks: Sequence[RankValues], step: int) -> set[int]:
    """Return the ranks whose optimizers leave a parameter to those of other ranks.

    With ZeRO-1, each rank's optimizer has some of the parameters, and sends them afterwards.
    """
    updating = {r for r, each in enumerate(ranks) if name in each.steps[step].updated}
    return {*range(len(ranks))} - updating if updating else set()


def is_close(
    value: torch.Tensor | None, expected: torch.Tensor, tolerance: float
) -> bool:
    """Tell whether no element differs by more than the tolerance; None is zeros, NaN equals NaN."""
    if value is None:
        return not expected.any()
    is_shaped = value.shape == expected.shape
    return is_shaped and bool(are_close(value, expected, tolerance).all())


def are_close(
    ours: torch.Tensor, theirs: torch.Tensor, tolerance: float
) -> torch.Tensor:
    """Return which elements are close; NaN equals NaN."""
    both = (ours.double(), theirs.double())
    return torch.isclose(*both, rtol=0.0, atol=tolerance, equal_nan=True)


def size_of(value: torch.Tensor | None) -> float:
    """Return the largest element that is a number."""
    if value is None or not value.numel():
        return 0.0
    return float(value.double().abs().nan_to_num(0.0, 0.0, 0.0).max())


def _largest_difference(one: torch.Tensor, two: torch.Tensor) -> float:
    """Return the largest difference of an element; infinity where one alone is no number."""
    ours, theirs = one.double(), two.double()
    is_same = (ours == theirs) | (ours.isnan() & theirs.isnan())
    off = (ours - theirs).abs().masked_fill(is_same, 0.0)
    return float(off.nan_to_num(torch.inf, torch.inf).max())


def _spread(
    plays: Sequence[torch.Tensor | None], value: torch.Tensor, lost: float
) -> float:
    """Return the largest root mean square of an element's differences.

    Where only one of two elements is a number, their difference is `lost`.
    """
    squares = list[torch.Tensor]()
    for each in (each for each in plays if each is not None):
        both_lack = ~(each.isfinite() | value.isfinite())
        off = (each.double() - value.double()).masked_fill(both_lack, 0.0)
        squares.append(off.nan_to_num(lost, lost, lost).square())
    return float(torch.stack(squares).mean(0).sqrt().max()) if squares else 0.0
