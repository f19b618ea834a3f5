"""The halves of a training on a rank: the first ends with a checkpoint, the second starts there."""

from __future__ import annotations

from dataclasses import dataclass

import torch

from syncverify.calling import call
from syncverify.faces.whole_step.checkpoint import load_distributed, save_distributed
from syncverify.faces.whole_step.steps import (
    Wired,
    held_values,
    read_again,
    trained,
    wired_on,
)
from syncverify.faces.whole_step.training import Function, Training
from syncverify.judge.whole_step.layout import Layout
from syncverify.judge.whole_step.values import NamedTensors, Quantity, RankValues

HeldValues = dict[Quantity, NamedTensors]


@dataclass(frozen=True, slots=True)
class LoadedValues:
    """A training that was loaded, as a rank has it.

    Attributes:
        fresh: Values that it held before loading.
        loaded: Values that it held after loading.
        values: Values of the steps after it.
    """

    fresh: HeldValues
    loaded: HeldValues
    values: RankValues

    def is_held(self, parameter: str) -> bool:
        """Tell whether an optimizer has a parameter itself; a flat slice is another tensor."""
        fresh = self.fresh[Quantity.LOADED_RATE]
        return parameter in fresh or parameter in self.values.options


def num_before(training: Training) -> int:
    """Return the number of steps before a training is saved."""
    return max(1, training.num_steps // 2)


def train_and_save(
    training: Training, layout: Layout, device: str, path: str
) -> torch.Tensor | None:
    """Make the first steps on this rank, and save them.

    Returns:
        The state of torch's generator; None if the steps draw nothing from it.
    """
    wired = wired_on(training, layout, device)
    trained(wired, layout, range(num_before(training)))
    # Each step starts from this seed.
    unused = torch.Generator().manual_seed(training.seed).get_state()
    state = torch.get_rng_state()
    _call(training.save or save_distributed, wired, path)
    return None if torch.equal(state, unused) else state


def load_and_train(
    training: Training, layout: Layout, device: str, path: str
) -> LoadedValues:
    """Load a checkpoint on this rank, and make the steps after it."""
    wired = wired_on(training, layout, device)
    fresh = held_values(wired, 0)
    _call(training.load or load_distributed, wired, path)
    wired = read_again(wired)
    loaded = held_values(wired, 1)
    rest = range(num_before(training), training.num_steps)
    return LoadedValues(fresh, loaded, trained(wired, layout, rest))


def _call(function: Function, wired: Wired, path: str) -> None:
    call(function, {**wired.user_values(), "path": path})
