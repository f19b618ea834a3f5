"""One training on one rank: the user's wiring and step, or the plain one of torch."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, field, replace
from numbers import Real
from typing import Any

import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.device_mesh import DeviceMesh
from torch.utils._pytree import tree_map

from syncverify.calling import call
from syncverify.errors import UsageError
from syncverify.faces.whole_step.clipping import clip_over_meshes
from syncverify.faces.whole_step.constant_gradients import constant_gradients
from syncverify.faces.whole_step.data import AllOnes, NotFinite
from syncverify.faces.whole_step.poison import (
    InfiniteLoss,
    Poison,
    Poisoned,
    is_last_shard,
)
from syncverify.faces.whole_step.training import Training
from syncverify.faces.whole_step.watching import StepWatch, options_of
from syncverify.faces.whole_step.wholes import (
    axes_of,
    by_first_names,
    local_squares,
    named_parameters,
    optimizer_state,
    plain_names,
)
from syncverify.faces.whole_step.wiring import wired_model
from syncverify.judge.whole_step.batches import copy_of, micro_batches, rank_part
from syncverify.judge.whole_step.layout import Layout
from syncverify.judge.whole_step.mesh_play import PlainGradients
from syncverify.judge.whole_step.noise import NoiseOfSteps
from syncverify.judge.whole_step.rounding import LoweredDtypes
from syncverify.judge.whole_step.shards import KeptParts, whole
from syncverify.judge.whole_step.values import (
    NamedTensors,
    Quantity,
    RankValues,
    StepValues,
)
from syncverify.sim.process_wide.generators import seed_torch
from syncverify.trace.dispatch_modes import without_dispatch_modes


@dataclass(frozen=True, slots=True)
class Wired:
    """A model on a rank, ready to train.

    Attributes:
        model: The model that `parallelize` made; the plain model in the step of the reference.
        mesh: The mesh; None for the plain step of the reference.
        optimizers: The optimizers; none where the model is no module.
        scaler: The scaler of the loss; None if there is none.
        schedule: The schedule of the learning rate; None if there is none.
        parameters: Parameters by the names of the plain model.
        names: First name of each parameter of the plain model, by all of its names.
        kept: Parts of tensors of the mesh.
        copies: Parameter of which a tensor of an optimizer is a copy, as steps find them.
    """

    training: Training
    model: Any
    mesh: DeviceMesh | None
    optimizers: list[torch.optim.Optimizer]
    scaler: Any
    schedule: Any
    parameters: dict[str, nn.Parameter]
    names: Mapping[str, str]
    kept: KeptParts = field(default_factory=dict)
    copies: dict[torch.Tensor, nn.Parameter] = field(default_factory=dict)

    def user_values(self) -> dict[str, Any]:
        """Return the values that a user's functions may take, by name."""
        return {
            "model": self.model,
            "optimizer": _one_or_all(self.optimizers),
            "scaler": self.scaler,
            "schedule": self.schedule,
            "mesh": self.mesh,
        }

    @property
    def scales(self) -> bool:
        """Tell whether the scaler multiplies the loss; one with `enabled=False` does nothing."""
        is_enabled = getattr(self.scaler, "is_enabled", None)
        is_off = callable(is_enabled) and not is_enabled()
        return self.scaler is not None and not is_off


def train_on_mesh(
    training: Training, layout: Layout, device: str, noise: NoiseOfSteps | None = None
) -> RankValues:
    """Train on this rank of a mesh.

    Args:
        training: Model, data, loss and parallelism that the user describes.
        layout: Names and sizes of the mesh axes.
        device: Device of the mesh.
        noise: Rounding noise; None for none.

    Returns:
        The values that the rank has.
    """
    wired = wired_on(training, layout, device)
    return trained(wired, layout, range(training.num_steps), noise)


def wired_on(training: Training, layout: Layout, device: str) -> Wired:
    """Put the model on this rank of a mesh."""
    mesh = layout.mesh(device)
    plain = training.model()
    names = plain_names(plain)
    model = wired_model(training, plain, mesh)
    optimizers = training.own_optimizers(model) if isinstance(model, nn.Module) else []
    scaler = None if training.scaler is None else call(training.scaler, {"mesh": mesh})
    parameters = _parameters(model, names)
    schedule = _schedule(training, optimizers)
    return Wired(
        training=training,
        model=model,
        mesh=mesh,
        optimizers=optimizers,
        scaler=scaler,
        schedule=schedule,
        parameters=parameters,
        names=names,
    )


def read_again(wired: Wired) -> Wired:
    """Return a model with the parameters that it has now: loading may exchange them."""
    return replace(wired, parameters=_parameters(wired.model, wired.names))


def _parameters(model: Any, names: Mapping[str, str]) -> dict[str, nn.Parameter]:
    return by_first_names(named_parameters(model, names), names)


def _schedule(training: Training, optimizers: list[torch.optim.Optimizer]) -> Any:
    if training.schedule is None or not optimizers:
        return None
    return call(training.schedule, {"optimizer": _one_or_all(optimizers)})


def train_plainly(
    training: Training,
    noise: NoiseOfSteps | None = None,
    skips: frozenset[int] = frozenset(),
) -> RankValues:
    """Train the plain model on one rank.

    Args:
        training: The training; it has a loss.
        noise: Rounding noise; None for none.
        skips: Steps in which a gradient overflows.

    Returns:
        The values that this rank has.
    """
    wired = _plain(training)
    start = _start(wired)
    poison = _poison(wired, None)
    steps, batches = list[StepValues](), list[Any]()
    for index in range(training.num_steps):
        batch = training.whole_batch(index)
        batches.append(copy_of(batch))
        with _overflowing(wired, index, skips) or _placed(poison, wired, index):
            steps.append(_step(wired, batch, index, _mode(noise, index)))
    return RankValues(
        start,
        tuple(steps),
        tuple(batches),
        {},
        _frozen(wired),
        first_names=plain_names(wired.model),
    )


def _mode(noise: NoiseOfSteps | None, step: int) -> AbstractContextManager[object]:
    return nullcontext() if noise is None else noise.mode(step)


def plain_gradients(
    training: Training, parts: Sequence[Any], step: int, start: NamedTensors
) -> PlainGradients:
    """Return the gradients of parts of a step's batch on one rank.

    Args:
        training: The training; it has a loss.
        parts: Parts of the batch.
        step: Number of the step.
        start: Parameters before the step.
    """
    wired = _plain(training)
    _set(wired.parameters, start)
    losses = [_losses(wired, tree_map(training.cast, part)) for part in parts]
    terms = _losses(wired, training.whole_batch(step))
    return PlainGradients(
        [_gradients(wired, total(each)) for each in losses],
        {name: _gradients(wired, each) for name, each in terms.items()}
        if len(terms) > 1
        else {},
    )


@torch.no_grad()
def _set(parameters: Mapping[str, nn.Parameter], values: NamedTensors) -> None:
    for name, parameter in parameters.items():
        if (value := values.get(name)) is not None:
            parameter.copy_(value)


def _losses(wired: Wired, batch: Any) -> dict[str, torch.Tensor]:
    loss = wired.training.loss
    assert loss is not None
    found = call(loss, {"model": wired.model, "batch": batch, "mesh": wired.mesh})
    return dict(found) if isinstance(found, Mapping) else {"loss": found}


def total(losses: Mapping[str, torch.Tensor]) -> torch.Tensor:
    """Return the sum of the terms of a loss."""
    return (
        torch.stack([*losses.values()]).sum()
        if len(losses) > 1
        else next(iter(losses.values()))
    )


def _gradients(wired: Wired, loss: torch.Tensor) -> dict[str, torch.Tensor]:
    named = {n: each for n, each in wired.parameters.items() if each.requires_grad}
    found = torch.autograd.grad(
        loss, [*named.values()], allow_unused=True, retain_graph=True
    )
    pairs = zip(named, found, strict=True)
    return {name: each for name, each in pairs if each is not None}


def optimizer_steps(
    training: Training, values: RankValues
) -> list[Mapping[Quantity, NamedTensors]]:
    """Return the optimizer's values for the gradients that a rank gave it, step by step."""
    wired = _plain(training)
    for name, parameter in wired.parameters.items():
        if (start := values.start.get(name)) is not None:
            parameter.data = start.clone()
    found = list[Mapping[Quantity, NamedTensors]]()
    for step in values.steps:
        number = step.tensors[Quantity.SKIPPED]["steps"]
        assert number is not None
        found.append(_optimized(wired, step.tensors[Quantity.STEPPED], int(number)))
    return found


def _optimized(
    wired: Wired, gradients: NamedTensors, number: int
) -> Mapping[Quantity, NamedTensors]:
    for parameter, name in _names(wired).items():
        gradient = gradients.get(name)
        parameter.grad = None if gradient is None else gradient.clone()
    for optimizer in wired.optimizers * number:
        optimizer.step()
    if wired.schedule is not None and number:
        wired.schedule.step()
    names = _names(wired)
    return {
        Quantity.STATE: {
            n: v.detach().clone() for n, v in optimizer_state(wired.optimizers, names)
        },
        Quantity.PARAMETER: {
            n: v.detach().clone() for n, v in wired.parameters.items()
        },
    }


def _plain(training: Training) -> Wired:
    model = training.model()
    scaler = None if training.scaler is None else call(training.scaler, {"mesh": None})
    names = plain_names(model)
    parameters = named_parameters(model, names)
    optimizers = training.own_optimizers(model)
    schedule = _schedule(training, optimizers)
    return Wired(
        training=training,
        model=model,
        mesh=None,
        optimizers=optimizers,
        scaler=scaler,
        schedule=schedule,
        parameters=parameters,
        names=names,
    )


def trained(
    wired: Wired,
    layout: Layout,
    indices: Iterable[int],
    noise: NoiseOfSteps | None = None,
) -> RankValues:
    """Make some steps on this rank of a mesh, and return the values that it has."""
    start, options = _start(wired), _options(wired)
    split_over = {name: axes_of(each) for name, each in wired.parameters.items()}
    poison = _poison(wired, layout)
    steps, batches = list[StepValues](), list[Any]()
    lowered = list[LoweredDtypes]()
    for index in indices:
        batch = _own_batch(wired, layout, index)
        batches.append(copy_of(batch))
        lowered.append(LoweredDtypes(wired.optimizers))
        with _placed(poison, wired, index), lowered[-1].noting():
            steps.append(_step(wired, batch, index, _mode(noise, index)))
    return RankValues(
        start,
        tuple(steps),
        tuple(batches),
        split_over,
        _frozen(wired),
        first_names=wired.names,
        is_poisoned=poison is not None and poison.is_called,
        has_infinite_loss=poison is not None and poison.has_infinite_loss,
        kept=wired.kept,
        options=options,
        lowered=frozenset().union(*(each.found for each in lowered)),
        lowered_scalars=frozenset().union(*(each.scalars for each in lowered)),
        overflows=frozenset(i for i, e in enumerate(lowered) if e.has_overflowed),
    )


def _options(wired: Wired) -> dict[str, dict[str, object]]:
    names = _names(wired)
    return {
        names[parameter]: options
        for optimizer in wired.optimizers
        for parameter, options in options_of(optimizer).items()
        if parameter in names
    }


def _frozen(wired: Wired) -> frozenset[str]:
    named = wired.parameters.items()
    return frozenset(name for name, each in named if not each.requires_grad)


def _poison(wired: Wired, layout: Layout | None) -> Poisoned | None:
    """Return the poison of a gradient, where the variation says so; one rank has no layout."""
    variation = wired.training.variation
    if not isinstance(variation, NotFinite):
        return None
    sizes = {} if layout is None else dict(layout.axes)
    coordinate = {} if layout is None else layout.coordinate(dist.get_rank())
    if variation.is_local:
        axes = () if layout is None else wired.training.split_axes(layout)
        return InfiniteLoss(is_here=all(coordinate[a] == sizes[a] - 1 for a in axes))
    own = wired.training.own
    is_last = is_last_shard(variation.name, own, coordinate, sizes)
    return Poison(variation, wired.parameters, is_last=is_last)


def _placed(
    poison: Poisoned | None, wired: Wired, index: int
) -> AbstractContextManager[None]:
    """Return the block of a step: the variation changes gradients in it."""
    if isinstance(variation := wired.training.variation, AllOnes):
        return constant_gradients(
            variation, wired.parameters, [*wired.names.values()], wired.scaler
        )
    if poison is None or index or not hasattr(wired.scaler, "unscale_"):
        return nullcontext()
    return poison.placed(wired.scaler)


def _overflowing(
    wired: Wired, index: int, skips: frozenset[int]
) -> AbstractContextManager[None] | None:
    """Return the block of a step in which a gradient overflows; None for other steps."""
    if index not in skips:
        return None
    names = (name for name, each in wired.parameters.items() if each.requires_grad)
    variation = NotFinite(next(names), math.inf)
    return Poison(variation, wired.parameters, is_last=True).placed(wired.scaler)


def _own_batch(wired: Wired, layout: Layout, step: int) -> Any:
    training = wired.training
    batch = training.whole_batch(step)
    if callable(training.split):
        return call(training.split, {"batch": batch, "mesh": wired.mesh})
    coordinate = layout.coordinate(dist.get_rank())
    return rank_part(batch, training.split_axes(layout), layout, coordinate)


def _step(
    wired: Wired,
    batch: Any,
    index: int,
    noise: AbstractContextManager[object],
) -> StepValues:
    """Make one step, and return its values."""
    watch = StepWatch(wired.parameters.values(), wired.optimizers, wired.copies)
    step = _step_function(wired)
    seed_torch(wired.training.step_seed)
    before = torch.get_rng_state()
    with watch.watching(), noise:
        returned = step(batch, index)
    watch.draws = not torch.equal(before, torch.get_rng_state())
    return _values(wired, watch, returned, index)


def _step_function(wired: Wired) -> Callable[[Any, int], Any]:
    training = wired.training
    if training.step is None or wired.mesh is None:
        return lambda batch, _: _plain_step(wired, batch)
    own_step = training.step

    def step(batch: Any, index: int) -> Any:
        values = {
            "model": wired.model,
            "batch": batch,
            "micro_batches": micro_batches(batch, training.num_micro_batches),
            **wired.user_values(),
            "step_index": index,
            **training.sizes,
        }
        return call(own_step, values)

    return step


def _plain_step(wired: Wired, batch: Any) -> dict[str, torch.Tensor]:
    """Make a step as torch's tutorials do: backward, unscale, clip, step, clear."""
    training, scaler = wired.training, wired.scaler
    number = 1 if wired.mesh is None else training.num_micro_batches
    for part in micro_batches(batch, number):
        loss = total(_losses(wired, part)) / number
        (loss if scaler is None else scaler.scale(loss)).backward()
    for optimizer in wired.optimizers:
        if scaler is not None:
            scaler.unscale_(optimizer)
    returned = dict[str, torch.Tensor]()
    if training.clip is not None:
        clipped = dict.fromkeys(wired.parameters.values())
        returned["norm"] = clip_over_meshes(clipped, training.clip)
    for optimizer in wired.optimizers:
        if scaler is None:
            optimizer.step()
        else:
            scaler.step(optimizer)
    if scaler is not None:
        scaler.update()
    # With gradients that are not finite, the only step is skipped, and a schedule has no effect.
    if wired.schedule is not None and not isinstance(training.variation, NotFinite):
        wired.schedule.step()
    for optimizer in wired.optimizers:
        optimizer.zero_grad()
    return returned


def _start(wired: Wired) -> NamedTensors:
    return _wholes(wired.parameters, Quantity.START, 0, wired.kept)


def _values(wired: Wired, watch: StepWatch, returned: Any, index: int) -> StepValues:
    """Return the values after a step."""
    parameters = wired.parameters
    gradients = {name: watch.gradient(each) for name, each in parameters.items()}
    _check_dense(gradients)
    read = {name: watch.read.get(each) for name, each in parameters.items()}
    names = _names(wired)
    copies = {each: names[p] for each, p in watch.copies.items() if p in names}
    found: dict[Quantity, Mapping[str, torch.Tensor | None]] = {
        Quantity.GRADIENT: gradients,
        Quantity.NORM: {} if watch.norm is None else {"norm": watch.norm},
        Quantity.STEPPED: read if watch.optimizers else {},
        Quantity.RETURNED: dict(_scalars(returned)),
        Quantity.SKIPPED: {"steps": torch.tensor(float(watch.num_steps))},
        Quantity.STATE: dict(optimizer_state(watch.optimizers, names | copies)),
        Quantity.PARAMETER: parameters,
    }
    tensors = {
        quantity: _wholes(each, quantity, index, wired.kept)
        for quantity, each in found.items()
    }
    if wired.scales:
        scale = float(wired.scaler.get_scale())
        tensors[Quantity.SCALE] = {"scale": torch.tensor(scale)}
    # Small gradients are not clipped, and the optimizer reads them unscaled.
    is_known = isinstance(wired.training.variation, AllOnes)
    squares = {
        name: local_squares(each)
        for name, each in (read if is_known else gradients).items()
        if each is not None and names[parameters[name]] == name
    }
    options = {n: watch.options[p] for n, p in parameters.items() if p in watch.options}
    return StepValues(
        tensors=tensors,
        local_squares=squares,
        rates=_rates_of(wired),
        clips_parts=watch.clips_parts,
        updated=frozenset(options),
        options=options,
        own_options=watch.own_options,
        draws=watch.draws,
        left=_left(wired, watch),
        read_elsewhere=frozenset(
            n for n, p in parameters.items() if p in watch.is_read_elsewhere
        ),
        copied=frozenset(copies.values()),
        max_norm=watch.max_norm,
        backwards=(*watch.backwards,),
        used={n: watch.used[p] for n, p in parameters.items() if p in watch.used},
    )


def _left(wired: Wired, watch: StepWatch) -> NamedTensors:
    """Return the parameters as an optimizer left them, where other values took their place."""
    with without_dispatch_modes():  # the program does not read it
        return {
            name: watch.updated[each]
            for name, each in wired.parameters.items()
            if each in watch.updated and not torch.equal(watch.updated[each], each)
        }


def _rates_of(wired: Wired) -> NamedTensors:
    """Return the learning rate of each parameter."""
    names = _names(wired)
    return {
        names[each]: torch.as_tensor(group["lr"]).detach().clone()
        for optimizer in wired.optimizers
        for group in getattr(optimizer, "param_groups", ())
        for each in group["params"]
        if each in names and "lr" in group
    }


def held_values(wired: Wired, moment: int) -> dict[Quantity, NamedTensors]:
    """Return the values that a training holds now, and that a checkpoint of it should hold.

    Args:
        wired: The training on this rank.
        moment: A number that differs between calls.
    """
    state = dict(optimizer_state(wired.optimizers, _names(wired)))
    held: dict[Quantity, NamedTensors] = {
        Quantity.LOADED: _wholes(wired.parameters, Quantity.LOADED, moment, wired.kept),
        Quantity.LOADED_STATE: _wholes(
            state, Quantity.LOADED_STATE, moment, wired.kept
        ),
        Quantity.LOADED_RATE: _rates_of(wired),
        Quantity.LOADED_GENERATOR: {"generator": torch.get_rng_state()},
    }
    if wired.scales:
        scale = float(wired.scaler.get_scale())
        held[Quantity.LOADED_SCALE] = {"scale": torch.tensor(scale)}
    return held


def _names(wired: Wired) -> dict[torch.Tensor, str]:
    """Return the first name of each parameter: tied weights have several."""
    names = dict[torch.Tensor, str]()
    for name, parameter in wired.parameters.items():
        names.setdefault(parameter, name)
    return names


def _one_or_all(optimizers: list[torch.optim.Optimizer]) -> Any:
    """Return the only optimizer, the list of several ones, or None."""
    return optimizers if len(optimizers) > 1 else next(iter(optimizers), None)


def _check_dense(gradients: Mapping[str, torch.Tensor | None]) -> None:
    for name, gradient in gradients.items():
        if gradient is not None and gradient.layout is not torch.strided:
            raise UsageError(
                f"expected dense gradients, and that of {name} is sparse; leave sparse=False"
            )


def _wholes(
    tensors: Mapping[str, torch.Tensor | None],
    quantity: Quantity,
    step: int,
    kept: KeptParts,
) -> NamedTensors:
    return {
        name: None if each is None else whole(each, (quantity, step, name), kept)
        for name, each in tensors.items()
    }


def _scalars(returned: Any) -> list[tuple[str, torch.Tensor]]:
    """Return the scalars that a step returns by name."""
    if not isinstance(returned, dict):
        return []
    return [
        (str(name), _as_tensor(value))
        for name, value in returned.items()
        if isinstance(value, Real | torch.Tensor)
    ]


def _as_tensor(value: Any) -> torch.Tensor:
    """Return a scalar as a tensor: of NumPy in its dtype, and of Python in float64."""
    if hasattr(value, "dtype"):
        return torch.as_tensor(value)
    return torch.tensor(float(value), dtype=torch.float64)
