"""A training that is saved after half of its steps, and goes on from there on other layouts.

It is compared with the training of one rank that nothing interrupts.
"""

from __future__ import annotations

import functools
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Final

import torch

from syncverify.errors import UsageError
from syncverify.faces.simulation.simulate import simulate
from syncverify.faces.whole_step.checkpoint import (
    LoadedValues,
    load_and_train,
    num_before,
    train_and_save,
)
from syncverify.faces.whole_step.outcome import LayoutPlay, worst_errors
from syncverify.faces.whole_step.playing import watched
from syncverify.faces.whole_step.training import Training
from syncverify.judge.whole_step.causes import NotContinued, StepMistake, WrongQuantity
from syncverify.judge.whole_step.differences import (
    ComparedValue,
    OneRank,
    compared,
    left_to_others,
)
from syncverify.judge.whole_step.gradient_causes import grouped
from syncverify.judge.whole_step.layout import Layout
from syncverify.judge.whole_step.loading_causes import loading_cause
from syncverify.judge.whole_step.parts import pieces
from syncverify.judge.whole_step.shards import fill
from syncverify.judge.whole_step.unread import is_read_elsewhere, unread
from syncverify.judge.whole_step.values import (
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


@dataclass(frozen=True, slots=True)
class Saved:
    """A checkpoint."""

    layout: Layout
    path: str
    # State of torch's generator by rank; None where the steps draw nothing.
    generators: Sequence[torch.Tensor | None]


def resumed_plays(
    training: Training, layouts: Sequence[Layout], reference: OneRank
) -> Iterator[LayoutPlay]:
    """Save on each layout, load on the same one and on the next one, and compare.

    The training is right on the layouts without a pause, as one rank makes it.

    Raises:
        UsageError: There is no step to make after loading, or torch's checkpoint would lose
            parts of ordinary tensors.
    """
    if training.num_steps < 2:
        raise UsageError("expected 2 or more steps to save, load, and go on")
    if training.own and training.save is None:
        raise UsageError(
            "torch's distributed checkpoint takes ordinary tensors, as `own` names them, from "
            "one rank: give functions `save` and `load`"
        )
    with TemporaryDirectory(prefix="syncverify-") as folder:
        for index, layout in enumerate(layouts):
            path = str(Path(folder) / str(index))
            Path(path).mkdir()
            program = functools.partial(train_and_save, training, layout, path)
            with watched():
                simulation = simulate(program, layout.num_ranks, device=training.device)
            if not simulation.is_right:
                number = training.num_micro_batches
                yield LayoutPlay(layout, number, simulation, saved_on=layout)
            if simulation.refused or simulation.run is None or simulation.run.fault:
                continue
            saved = Saved(layout, path, simulation.results)
            following = layouts[(index + 1) % len(layouts)]
            for target in dict.fromkeys((layout, following)):
                yield _resumed(training, saved, target, reference)


def _resumed(
    training: Training,
    saved: Saved,
    layout: Layout,
    reference: OneRank,
) -> LayoutPlay:
    program = functools.partial(load_and_train, training, layout, saved.path)
    with watched():
        simulation = simulate(program, layout.num_ranks, device=training.device)
    number = training.num_micro_batches
    played = LayoutPlay(layout, number, simulation, saved_on=saved.layout)
    ranks = [each for each in simulation.results if isinstance(each, LoadedValues)]
    if len(ranks) < layout.num_ranks:
        return played
    fill([each.values.kept for each in ranks])
    play = ResumedPlay(training, saved, layout, ranks, reference)
    values = play.values()
    return replace(
        played,
        findings=tuple(play.findings(values)),
        num_values=len(values),
        worst=worst_errors(values),
    )


@dataclass(frozen=True, slots=True)
class ResumedPlay:
    """A training that goes on from a checkpoint, beside one rank."""

    training: Training
    saved: Saved
    layout: Layout  # layout that read it
    ranks: Sequence[LoadedValues]
    reference: OneRank  # values of one rank, without a pause

    @property
    def first_step(self) -> int:
        """Number of the first step after loading, from 0."""
        return num_before(self.training)

    def values(self) -> list[ComparedValue]:
        """Return the compared values after loading, except those that no parameter depends on."""
        values = [*self._loaded(), *self._later()]
        ignored = unread(values, self._values_of_ranks)
        return [
            replace(each, step=each.step + self.first_step)
            for each in values
            if not any(each is other for other in ignored)
        ]

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
        yield from self._generators()

    def _value(
        self, quantity: Quantity, name: str, value: torch.Tensor | None
    ) -> Iterator[ComparedValue]:
        parameter = parameter_of(name)
        held_by = {*range(len(self.ranks))}
        if quantity in _HELD:
            held_by = self._holding(parameter)
        got = {
            rank: each.loaded[quantity].get(name)
            for rank, each in enumerate(self.ranks)
            if quantity in each.loaded
            if name in each.loaded[quantity]
            or (parameter in each.values.start and rank in held_by)
        }
        if value is None or not got:
            return
        own, layout = self.training.own, self.layout
        expected = pieces(name, value, got, layout=layout, own=own)
        yield ComparedValue(quantity, 0, name, got, expected)

    def _holding(self, parameter: str) -> set[int]:
        """Return the ranks whose optimizers have a parameter, and update it."""
        holding = {rank for rank, e in enumerate(self.ranks) if e.is_held(parameter)}
        return holding - left_to_others(parameter, self._values_of_ranks, 0)

    def _generators(self) -> Iterator[ComparedValue]:
        """Yield the generators, where the same ranks go on and their steps draw numbers."""
        kept = dict(enumerate(self.saved.generators))
        expected = {rank: each for rank, each in kept.items() if each is not None}
        if self.layout != self.saved.layout or not expected:
            return
        quantity, name = Quantity.LOADED_GENERATOR, "generator"
        got = {rank: self.ranks[rank].loaded[quantity][name] for rank in expected}
        yield ComparedValue(quantity, 0, name, got, expected)

    def _later(self) -> Iterator[ComparedValue]:
        """Yield the values of the steps after loading, beside one rank."""
        first = self.first_step
        plain, noisy = self.reference.values, self.reference.noisy
        rest = OneRank(
            _rest(plain, first), lambda: [_rest(each, first) for each in noisy()]
        )
        ranks = self._values_of_ranks
        for each in compared(ranks, rest, self.layout, self.training.own):
            if each.quantity is not Quantity.START:
                yield each

    def findings(self, values: Sequence[ComparedValue]) -> Iterator[WrongQuantity]:
        """Yield the mistakes: each kind of value is loaded by itself."""
        wrong = [each for each in values if each.wrong_ranks]
        loaded = [each for each in wrong if each.quantity in self.ranks[0].loaded]
        for quantity in dict.fromkeys(each.quantity for each in loaded):
            same = [each for each in loaded if each.quantity is quantity]
            total = sum(each.quantity is quantity for each in values)
            for cause, listed in grouped((each, self._cause(each)) for each in same):
                step = self.first_step
                yield WrongQuantity(quantity, step, cause, tuple(listed), total)
        if wrong and not loaded:
            first = next((e for e in wrong if not self._is_elsewhere(e)), wrong[0])
            same = [
                each
                for each in values
                if (each.step, each.quantity) == (first.step, first.quantity)
            ]
            cause = NotContinued(is_all_compared=self._is_all_compared)
            differences = tuple(each for each in same if each.wrong_ranks)
            yield WrongQuantity(
                first.quantity, first.step, cause, differences, len(same)
            )

    def _is_elsewhere(self, found: ComparedValue) -> bool:
        return is_read_elsewhere(found, self._values_of_ranks, self.first_step)

    @property
    def _is_all_compared(self) -> bool:
        """Tell whether no optimizer has tensors of its own, such as a flat slice or copies."""
        steps = (step for each in self.ranks for step in each.values.steps)
        return not any(each.read_elsewhere or each.copied for each in steps)

    def _cause(self, found: ComparedValue) -> StepMistake:
        fresh: Mapping[int, torch.Tensor | None] = {
            rank: self.ranks[rank].fresh.get(found.quantity, {}).get(found.name)
            for rank in found.got
        }
        return loading_cause(found, fresh, self.saved.layout, self.layout)


def _rest(values: RankValues, first: int) -> RankValues:
    """Return the values of the later steps."""
    start, steps = values.parameters_before(first), values.steps[first:]
    return replace(values, start=start, steps=steps, batches=values.batches[first:])
