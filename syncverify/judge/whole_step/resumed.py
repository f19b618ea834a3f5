"""Values of a training that goes on from a checkpoint, beside one rank that nothing interrupts."""

import itertools
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Final

import torch

from syncverify.judge.whole_step import causes
from syncverify.judge.whole_step.copies import copy_cause
from syncverify.judge.whole_step.differences import (
    ComparedValue,
    OneRank,
    compared,
    is_close,
    left_to_others,
)
from syncverify.judge.whole_step.gradient_causes import grouped
from syncverify.judge.whole_step.layout import Layout, Own
from syncverify.judge.whole_step.parts import pieces
from syncverify.judge.whole_step.unread import is_read_elsewhere, unread
from syncverify.judge.whole_step.values import (
    NamedTensors,
    Quantity,
    RankValues,
    parameter_of,
)

# Each loaded quantity, and the quantity of the step before that it has to be.
_LOADED: Final = {
    Quantity.LOADED: Quantity.PARAMETER,
    Quantity.LOADED_STATE: Quantity.STATE,
    Quantity.LOADED_SCALE: Quantity.SCALE,
}
# Values of an optimizer that has the parameter.
_HELD: Final = (Quantity.LOADED_STATE, Quantity.LOADED_RATE)
HeldValues = dict[Quantity, NamedTensors]


@dataclass(frozen=True, slots=True)
class LoadedValues:
    """A training that was loaded, as a rank has it."""

    fresh: HeldValues  # values that it held before loading
    loaded: HeldValues  # values that it held after loading
    values: RankValues


@dataclass(frozen=True, slots=True)
class ResumedPlay:
    """A training that goes on from a checkpoint, beside one rank."""

    first_step: int  # after loading
    saved_on: Layout
    # State of torch's generator by rank when it was saved; None where the steps draw nothing.
    generators: Sequence[torch.Tensor | None]
    layout: Layout  # that reads the checkpoint
    ranks: Sequence[LoadedValues]
    reference: OneRank  # without a pause
    own: Own

    def values(self) -> list[ComparedValue]:
        """Return the compared values after loading, except those that no parameter depends on."""
        first, ranks = self.first_step, self._values_of_ranks
        plain, noisy = self.reference.values, self.reference.noisy
        rest = OneRank(_rest(plain, first), lambda: [_rest(e, first) for e in noisy()])
        later = compared(ranks, rest, self.layout, self.own)
        values = [*self._loaded()]
        values += (each for each in later if each.quantity is not Quantity.START)
        ignored = unread(values, ranks)
        return [replace(e, step=e.step + first) for e in values if e not in ignored]

    @property
    def _values_of_ranks(self) -> list[RankValues]:
        return [each.values for each in self.ranks]

    def _loaded(self) -> Iterator[ComparedValue]:
        """Yield the values of each rank after loading, beside those of one rank before it."""
        before = self.first_step - 1
        for quantity, source in _LOADED.items():
            for name, value in self.reference.tensors(source, before).items():
                for found in self._value(quantity, name, value):
                    yield self.reference.bounded(found, source, before)
        for name, rate in self.reference.values.steps[before].rates.items():
            yield from self._value(Quantity.LOADED_RATE, name, rate)
        # Generators count where the same ranks go on and their steps draw numbers.
        kept = enumerate(self.generators)
        expected = {rank: each for rank, each in kept if each is not None}
        if self.layout == self.saved_on and expected:
            quantity, name = Quantity.LOADED_GENERATOR, "generator"
            got = {rank: self.ranks[rank].loaded[quantity][name] for rank in expected}
            yield ComparedValue(quantity, 0, name, got, expected)

    def _value(
        self, quantity: Quantity, name: str, value: torch.Tensor | None
    ) -> Iterator[ComparedValue]:
        parameter = parameter_of(name)
        held_by = {*range(len(self.ranks))}
        if quantity in _HELD:  # the ranks whose optimizers have it, and update it
            # A flat slice is another tensor.
            held_by = {
                rank
                for rank, each in enumerate(self.ranks)
                if parameter
                in {*each.fresh[Quantity.LOADED_RATE], *each.values.options}
            }
            held_by -= left_to_others(parameter, self._values_of_ranks, 0)
        got = {
            rank: each.loaded[quantity].get(name)
            for rank, each in enumerate(self.ranks)
            if quantity in each.loaded
            if name in each.loaded[quantity]
            or (parameter in each.values.start and rank in held_by)
        }
        if value is None or not got:
            return
        expected = pieces(name, value, got, layout=self.layout, own=self.own)
        yield ComparedValue(quantity, 0, name, got, expected)

    def findings(
        self, values: Sequence[ComparedValue]
    ) -> Iterator[causes.WrongQuantity]:
        """Yield the mistakes: each kind of value is loaded by itself."""
        wrong = [each for each in values if each.wrong_ranks]
        loaded = [each for each in wrong if each.quantity in self.ranks[0].loaded]
        for quantity in dict.fromkeys(each.quantity for each in loaded):
            same = [each for each in loaded if each.quantity is quantity]
            total = sum(each.quantity is quantity for each in values)
            for cause, listed in grouped((each, self._cause(each)) for each in same):
                step = self.first_step
                yield causes.WrongQuantity(quantity, step, cause, tuple(listed), total)
        if wrong and not loaded:
            ranks, step = self._values_of_ranks, self.first_step
            read = (e for e in wrong if not is_read_elsewhere(e, ranks, step))
            first = next(read, wrong[0])
            step, quantity = first.step, first.quantity
            same = [e for e in values if (e.step, e.quantity) == (step, quantity)]
            # An optimizer may have tensors of its own, such as a flat slice or copies.
            steps = [step for each in ranks for step in each.steps]
            is_all = not any(each.read_elsewhere or each.copied for each in steps)
            cause = causes.NotContinued(is_all_compared=is_all)
            off = tuple(each for each in same if each.wrong_ranks)
            yield causes.WrongQuantity(quantity, step, cause, off, len(same))

    def _cause(self, found: ComparedValue) -> causes.StepMistake:
        if all(self._is_fresh(found, rank) for rank in found.wrong_ranks):
            return causes.NotLoaded()
        # One layout wrote the checkpoint, another one read it.
        sizes = {size for each in (self.saved_on, self.layout) for _, size in each.axes}
        numbers = sorted(sizes | {self.saved_on.num_ranks, self.layout.num_ranks})
        for parts, right in _divided(found, numbers):
            order = _order(parts, right, found.tolerance)
            if order is not None and order != tuple(range(len(right))):
                return causes.Misplaced(order)
        return copy_cause(found, self.layout)

    def _is_fresh(self, found: ComparedValue, rank: int) -> bool:
        before = self.ranks[rank].fresh.get(found.quantity, {}).get(found.name)
        value = found.got[rank]
        if value is None or before is None:
            # The state of a new optimizer is empty, or zero.
            return value is None or not value.any()
        return is_close(value, before, 0.0)


def _rest(values: RankValues, first: int) -> RankValues:
    start, steps = values.parameters_before(first), values.steps[first:]
    return replace(values, start=start, steps=steps, batches=values.batches[first:])


def _divided(
    found: ComparedValue, numbers: Sequence[int]
) -> Iterator[tuple[list[torch.Tensor], list[torch.Tensor]]]:
    """Yield parts of the value, and the right ones: shards by rank, copies along each dimension."""
    got = [found.got[rank] for rank in sorted(found.got)]
    right = [found.expected[rank] for rank in sorted(found.got)]
    present = [each for each in got if each is not None]
    if len(present) < len(got):
        return
    first = present[0]
    if any(not torch.equal(each, right[0]) for each in right):
        yield present, right
    elif first.shape == right[0].shape:
        for number, dim in itertools.product(numbers, range(first.dim())):
            if number > 1 and first.shape[dim] >= number:
                yield [*first.chunk(number, dim)], [*right[0].chunk(number, dim)]


def _order(
    parts: Sequence[torch.Tensor], right: Sequence[torch.Tensor], tolerance: float
) -> tuple[int, ...] | None:
    """Return the index of the right part at each place; None if one is no right part."""
    order = list[int]()
    for place, part in enumerate(parts):
        places = (place, *range(len(right)))
        order += [i for i in places if is_close(part, right[i], tolerance)][:1]
    return tuple(order) if len(order) == len(parts) else None
