"""A training that is saved after half of its steps, and goes on from there on other layouts.

It is compared with the training of one rank that nothing interrupts. torch's distributed checkpoint saves and
loads it where the training names no own way.
"""

import functools
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import torch
import torch.distributed as dist
import torch.distributed.checkpoint as dcp
from torch import nn
from torch.distributed.checkpoint.state_dict import get_state_dict, set_state_dict

from syncverify.calling import call
from syncverify.errors import UsageError
from syncverify.faces.simulation.simulate import simulate
from syncverify.faces.simulation.simulation import Simulation
from syncverify.faces.whole_step.outcome import LayoutPlay, worst_errors
from syncverify.faces.whole_step.playing import watched
from syncverify.faces.whole_step.steps import trained
from syncverify.faces.whole_step.training import Function, Training
from syncverify.faces.whole_step.wired import Wired, optimizer_state, wired_on
from syncverify.judge.properties.trainings import loading_continues_the_training
from syncverify.judge.whole_step.differences import OneRank
from syncverify.judge.whole_step.layout import Layout
from syncverify.judge.whole_step.resumed import HeldValues, LoadedValues, ResumedPlay
from syncverify.judge.whole_step.shards import fill
from syncverify.judge.whole_step.values import Quantity


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
            simulation = _played(train_and_save, training, layout, path)
            if not simulation.is_right:
                number = training.num_micro_batches
                yield LayoutPlay(layout, number, simulation, saved_on=layout)
            if simulation.refused or simulation.run is None or simulation.run.fault:
                continue
            generators = simulation.results
            following = layouts[(index + 1) % len(layouts)]
            for target in dict.fromkeys((layout, following)):
                simulation = _played(load_and_train, training, target, path)
                play = ResumedPlay(
                    _num_before(training),
                    layout,
                    generators,
                    target,
                    [e for e in simulation.results if isinstance(e, LoadedValues)],
                    reference,
                    training.own,
                )
                yield _compared(training, simulation, play)


def _played(
    half: Function, training: Training, layout: Layout, path: str
) -> Simulation:
    program = functools.partial(half, training, layout, path)
    with watched():
        return simulate(program, layout.num_ranks, device=training.device)


def _compared(
    training: Training, simulation: Simulation, play: ResumedPlay
) -> LayoutPlay:
    layout, number = play.layout, training.num_micro_batches
    played = LayoutPlay(layout, number, simulation, saved_on=play.saved_on)
    if len(play.ranks) < layout.num_ranks:
        return played
    fill([each.values.kept for each in play.ranks])
    values = play.values()
    return replace(
        played,
        findings=tuple(loading_continues_the_training(values, play)),
        num_values=len(values),
        worst=worst_errors(values),
    )


def _num_before(training: Training) -> int:
    """Return the number of steps before a training is saved."""
    return max(1, training.num_steps // 2)


def train_and_save(
    training: Training, layout: Layout, path: str
) -> torch.Tensor | None:
    """Make and save the first steps; return the state of torch's generator, None if it is unused."""
    wired = wired_on(training, layout)
    trained(wired, range(_num_before(training)))
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
    rest = range(_num_before(training), training.num_steps)
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
    """Write a checkpoint to a folder; optimizers may be one or several."""
    dcp.save(_state(model, optimizer, scaler, schedule), checkpoint_id=path)


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
    """Return the content of a checkpoint; raise UsageError for a model of several modules."""
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
