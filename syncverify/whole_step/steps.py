"""One training on one rank: the user's wiring and step, or the plain one of torch."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from typing import Any

import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.device_mesh import DeviceMesh

from syncverify.whole_step.batches import micro_batches, rank_part
from syncverify.whole_step.calling import call
from syncverify.whole_step.clipping import clip_over_meshes
from syncverify.whole_step.layout import Layout
from syncverify.whole_step.noise import RoundingNoise
from syncverify.whole_step.training import Training
from syncverify.whole_step.values import NamedTensors, Quantity, RankValues, StepValues
from syncverify.whole_step.watching import StepWatch
from syncverify.whole_step.wholes import (
    axes_of,
    local_squares,
    named_parameters,
    state_of,
    whole,
)


@dataclass(frozen=True, slots=True)
class Wired:
    """A model on a rank, ready to train.

    Attributes:
        training: The training.
        model: What `parallelize` made of the model; the plain model on one rank.
        mesh: The mesh; None for the plain step of the reference.
        optimizer: The optimizer.
        scaler: The scaler of the loss; None if there is none.
        parameters: Parameters by the names of the plain model.
    """

    training: Training
    model: Any
    mesh: DeviceMesh | None
    optimizer: torch.optim.Optimizer | None
    scaler: Any
    parameters: dict[str, nn.Parameter]


def train_on_mesh(training: Training, layout: Layout, device: str) -> RankValues:
    """Train on this rank of a mesh, and return the values that it has."""
    mesh = layout.mesh(device)
    model = training.model()
    names = [name for name, _ in model.named_parameters()]
    wired = call(training.parallelize, {"model": model, "mesh": mesh, **training.sizes})
    return _trained(training, model if wired is None else wired, mesh, names, layout)


def train_plainly(training: Training, noise_seed: int | None = None) -> RankValues:
    """Train the plain model on one rank, and return the values that it has.

    Args:
        training: The training; it has a loss.
        noise_seed: Seed of rounding noise; None for none.

    Returns:
        The values.
    """
    wired = _plain(training)
    start = {name: whole(each) for name, each in wired.parameters.items()}
    steps, batches = list[StepValues](), list[Any]()
    for index in range(training.num_steps):
        batches.append(training.whole_batch(index))
        noise = (
            nullcontext() if noise_seed is None else RoundingNoise(noise_seed + index)
        )
        steps.append(_step(wired, batches[-1], index, noise))
    return RankValues(start, tuple(steps), tuple(batches), {})


def part_gradients(
    training: Training, parts: Sequence[Any], step: int
) -> list[dict[str, torch.Tensor]]:
    """Return the gradient of each part of a step's batch, by name, on one rank."""
    assert training.loss is not None
    wired = _plain(training)
    for index in range(step):
        _step(wired, training.whole_batch(index), index)
    gradients = list[dict[str, torch.Tensor]]()
    for part in parts:
        loss = call(training.loss, {"model": wired.model, "batch": part, "mesh": None})
        trained = {
            n: each for n, each in wired.parameters.items() if each.requires_grad
        }
        found = torch.autograd.grad(loss, [*trained.values()], allow_unused=True)
        named = zip(trained, found, strict=True)
        gradients.append({name: each for name, each in named if each is not None})
    return gradients


def _plain(training: Training) -> Wired:
    model = training.model()
    scaler = None if training.scaler is None else call(training.scaler, {"mesh": None})
    parameters = dict(model.named_parameters())
    optimizer = training.own_optimizer(model)
    return Wired(training, model, None, optimizer, scaler, parameters)


def _trained(
    training: Training,
    model: Any,
    mesh: DeviceMesh,
    names: list[str],
    layout: Layout,
) -> RankValues:
    parameters = named_parameters(model, names)
    optimizer = training.own_optimizer(model) if isinstance(model, nn.Module) else None
    scaler = None if training.scaler is None else call(training.scaler, {"mesh": mesh})
    wired = Wired(training, model, mesh, optimizer, scaler, parameters)
    start = {name: whole(each) for name, each in parameters.items()}
    split_over = {name: axes_of(each) for name, each in parameters.items()}
    steps, batches = list[StepValues](), list[Any]()
    for index in range(training.num_steps):
        batches.append(_own_batch(training, mesh, layout, index))
        steps.append(_step(wired, batches[-1], index))
    return RankValues(start, tuple(steps), tuple(batches), split_over)


def _own_batch(training: Training, mesh: DeviceMesh, layout: Layout, step: int) -> Any:
    batch = training.whole_batch(step)
    if callable(training.split):
        return call(training.split, {"batch": batch, "mesh": mesh})
    coordinate = layout.coordinate(dist.get_rank())
    return rank_part(batch, training.split_axes(layout), layout, coordinate)


def _step(
    wired: Wired,
    batch: Any,
    index: int,
    noise: AbstractContextManager[object] = nullcontext(),  # noqa: B008
) -> StepValues:
    """Make one step, and return its values."""
    watch = StepWatch()
    step = _step_function(wired)
    torch.manual_seed(wired.training.seed)
    with watch.watching(), noise:
        returned = step(batch, index)
    return _values(wired, watch, returned)


def _step_function(wired: Wired) -> Callable[[Any, int], Any]:
    training = wired.training
    if training.step is None or wired.mesh is None:
        return lambda batch, _: plain_step(wired, batch)
    own_step = training.step

    def step(batch: Any, index: int) -> Any:
        values = {
            "model": wired.model,
            "batch": batch,
            "mesh": wired.mesh,
            "optimizer": wired.optimizer,
            "micro_batches": micro_batches(batch, training.num_micro_batches),
            "scaler": wired.scaler,
            "step_index": index,
            **training.sizes,
        }
        return call(own_step, values)

    return step


def plain_step(wired: Wired, batch: Any) -> dict[str, torch.Tensor]:
    """Make a step as torch's tutorials do: backward, unscale, clip, step, clear."""
    training, optimizer, scaler = wired.training, wired.optimizer, wired.scaler
    assert training.loss is not None
    assert optimizer is not None
    number = 1 if wired.mesh is None else training.num_micro_batches
    for part in micro_batches(batch, number):
        values = {"model": wired.model, "batch": part, "mesh": wired.mesh}
        loss = call(training.loss, values) / number
        (loss if scaler is None else scaler.scale(loss)).backward()
    if scaler is not None:
        scaler.unscale_(optimizer)
    returned = dict[str, torch.Tensor]()
    if training.clip is not None:
        clipped = wired.parameters.values()
        returned["norm"] = clip_over_meshes(clipped, training.clip)
    if scaler is None:
        optimizer.step()
    else:
        scaler.step(optimizer)
        scaler.update()
    optimizer.zero_grad()
    return returned


def _values(wired: Wired, watch: StepWatch, returned: Any) -> StepValues:
    """Return the values after a step; all ranks make the same collectives here."""
    parameters = wired.parameters
    gradients = {name: watch.gradient(each) for name, each in parameters.items()}
    read = {name: watch.read.get(each) for name, each in parameters.items()}
    names = {each: name for name, each in parameters.items()}
    tensors: dict[Quantity, NamedTensors] = {
        Quantity.GRADIENT: _wholes(gradients),
        Quantity.NORM: {} if watch.norm is None else {"norm": whole(watch.norm)},
        Quantity.STEPPED: _wholes(read) if watch.optimizers else {},
        Quantity.RETURNED: dict(_scalars(returned)),
        Quantity.SKIPPED: {"steps": torch.tensor(float(len(watch.optimizers)))},
        Quantity.STATE: {
            name: whole(value)
            for name, value in state_of(dict.fromkeys(watch.optimizers), names)
        },
        Quantity.PARAMETER: _wholes(parameters),
    }
    if wired.scaler is not None:
        scale = float(wired.scaler.get_scale())
        tensors[Quantity.SCALE] = {"scale": torch.tensor(scale)}
    squares = {
        name: local_squares(each)
        for name, each in gradients.items()
        if each is not None
    }
    return StepValues(tensors, squares)


def _wholes(tensors: Any) -> NamedTensors:
    return {
        name: None if each is None else whole(each) for name, each in tensors.items()
    }


def _scalars(returned: Any) -> list[tuple[str, torch.Tensor]]:
    """Return the scalars that a step returns by name."""
    if not isinstance(returned, dict):
        return []
    return [
        (str(name), whole(torch.as_tensor(value)).double())
        for name, value in returned.items()
        if isinstance(value, int | float | torch.Tensor)
    ]
