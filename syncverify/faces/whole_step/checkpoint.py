"""A training that is saved and loaded on a rank, also with torch's distributed checkpoint."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch
import torch.distributed as dist
import torch.distributed.checkpoint as dcp
from torch import nn
from torch.distributed.checkpoint.state_dict import get_state_dict, set_state_dict

from syncverify.calling import call
from syncverify.errors import UsageError
from syncverify.faces.whole_step.steps import trained
from syncverify.faces.whole_step.training import Function, Training
from syncverify.faces.whole_step.wired import Wired, optimizer_state, wired_on
from syncverify.judge.whole_step.layout import Layout
from syncverify.judge.whole_step.values import NamedTensors, Quantity, RankValues

HeldValues = dict[Quantity, NamedTensors]


@dataclass(frozen=True, slots=True)
class LoadedValues:
    """A training that was loaded, as a rank has it."""

    fresh: HeldValues  # values that it held before loading
    loaded: HeldValues  # values that it held after loading
    values: RankValues

    def is_held(self, parameter: str) -> bool:
        """Tell whether an optimizer has a parameter itself; a flat slice is another tensor."""
        fresh = self.fresh[Quantity.LOADED_RATE]
        return parameter in fresh or parameter in self.values.options


def num_before(training: Training) -> int:
    """Return the number of steps before a training is saved."""
    return max(1, training.num_steps // 2)


def train_and_save(
    training: Training, layout: Layout, path: str
) -> torch.Tensor | None:
    """Make the first steps on this rank, and save them.

    Returns:
        The state of torch's generator; None if the steps draw nothing from it.
    """
    wired = wired_on(training, layout)
    trained(wired, range(num_before(training)))
    # Each step starts from this seed.
    unused = torch.Generator().manual_seed(training.seed).get_state()
    state = torch.get_rng_state()
    _call(training.save or save_distributed, wired, path)
    return None if torch.equal(state, unused) else state


def load_and_train(training: Training, layout: Layout, path: str) -> LoadedValues:
    """Load a checkpoint on this rank, and make the steps after it."""
    wired = wired_on(training, layout)
    fresh = _held_values(wired, 0)
    _call(training.load or load_distributed, wired, path)
    wired = wired.read_again()
    loaded = _held_values(wired, 1)
    rest = range(num_before(training), training.num_steps)
    return LoadedValues(fresh, loaded, trained(wired, rest))


def _held_values(wired: Wired, moment: int) -> HeldValues:
    """Return the values that a training holds now, and that a checkpoint of it should hold.

    The moment is a number that differs between calls.
    """
    state = optimizer_state(wired.optimizers, wired.first_names)
    held: HeldValues = {
        Quantity.LOADED: wired.wholes(wired.parameters, Quantity.LOADED, moment),
        Quantity.LOADED_STATE: wired.wholes(state, Quantity.LOADED_STATE, moment),
        Quantity.LOADED_RATE: wired.rates,
        Quantity.LOADED_GENERATOR: {"generator": torch.get_rng_state()},
    }
    if (scale := wired.scale) is not None:
        held[Quantity.LOADED_SCALE] = {"scale": torch.tensor(scale)}
    return held


def _call(function: Function, wired: Wired, path: str) -> None:
    call(function, {**wired.user_values(), "path": path})


def save_distributed(
    model: Any, optimizer: Any, scaler: Any, schedule: Any, path: str
) -> None:
    """Write a checkpoint to a folder; optimizers may be one or several.

    Raises:
        UsageError: torch's checkpoint takes no such model.
    """
    saved = _state(model, optimizer, scaler, schedule)
    dcp.save(saved, checkpoint_id=path)


def load_distributed(
    model: Any, optimizer: Any, scaler: Any, schedule: Any, path: str
) -> None:
    """Read a checkpoint that any mesh has written; arguments are those of saving."""
    state = _state(model, optimizer, scaler, schedule)
    own = {name: value for name, value in state.items() if name.startswith("generator")}
    known = {*dcp.FileSystemReader(path).read_metadata().state_dict_metadata}
    for name in own.keys() - known:  # the checkpoint is of fewer ranks
        del state[name]
    dcp.load(state, checkpoint_id=path)
    set_state_dict(
        model,
        _listed(optimizer),
        model_state_dict=state["model"],
        optim_state_dict=state["optimizer"],
    )
    for each, name in ((scaler, "scaler"), (schedule, "schedule")):
        if each is not None:
            each.load_state_dict(state[name])
    for name in own.keys() & known:
        torch.set_rng_state(state[name])


def _state(model: Any, optimizer: Any, scaler: Any, schedule: Any) -> dict[str, Any]:
    """Return the content of a checkpoint: all ranks with a part of a tensor write it.

    Raises:
        UsageError: torch's checkpoint takes no such model.
    """
    if not isinstance(model, nn.Module):
        raise UsageError(
            "torch's distributed checkpoint takes one module; give `save` and `load`"
        )
    parameters, states = get_state_dict(model, _listed(optimizer))
    found: dict[str, Any] = {"model": parameters, "optimizer": states}
    # Values of one name are those of one rank: each rank's generator has another name.
    found[f"generator_{dist.get_rank()}"] = torch.get_rng_state()
    for each, name in ((scaler, "scaler"), (schedule, "schedule")):
        if each is not None:
            found[name] = each.state_dict()
    return found


def _listed(optimizer: Any) -> list[torch.optim.Optimizer]:
    if optimizer is None:
        return []
    return optimizer if isinstance(optimizer, list) else [optimizer]
