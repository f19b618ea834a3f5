"""The steps of one training on one rank: the user's step, or the plain one of torch."""

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from numbers import Real
from typing import Any

import torch
import torch.distributed as dist
from torch.utils._pytree import tree_map

from syncverify.calling import call
from syncverify.errors import UsageError
from syncverify.faces.whole_step.data import (
    AllOnes,
    NotFinite,
    Poison,
    constant_gradients,
)
from syncverify.faces.whole_step.graph import ForwardLines, noted_uses
from syncverify.faces.whole_step.training import Training
from syncverify.faces.whole_step.watching import StepWatch
from syncverify.faces.whole_step.wired import (
    Wired,
    axes_of,
    clip_over_meshes,
    optimizer_state,
    wired_on,
)
from syncverify.judge.whole_step.layout import Layout
from syncverify.judge.whole_step.mesh_play import PlainGradients
from syncverify.judge.whole_step.noise import Noise
from syncverify.judge.whole_step.parts import (
    copy_of,
    micro_batches,
    own_axes,
    rank_part,
)
from syncverify.judge.whole_step.rounding import LoweredDtypes
from syncverify.judge.whole_step.shards import local_part
from syncverify.judge.whole_step.values import (
    NamedTensors,
    Quantity,
    RankValues,
    StepValues,
)
from syncverify.sim.process_wide.generators import seed_torch
from syncverify.trace.dispatch_modes import without_dispatch_modes


def train(
    training: Training,
    layout: Layout | None,
    noise: Noise | None = None,
    skips: frozenset[int] = frozenset(),
) -> RankValues:
    """Return the values of a rank of a mesh, or of the plain model on one rank without a layout.

    The plain model needs a loss. A gradient overflows in the steps to skip.
    """
    wired = wired_on(training, layout)
    return trained(wired, range(training.num_steps), noise, skips)


def trained(
    wired: Wired,
    indices: Iterable[int],
    noise: Noise | None = None,
    skips: frozenset[int] = frozenset(),
) -> RankValues:
    """Make some steps on this rank, and return the values that it has."""
    start = wired.wholes(wired.parameters, Quantity.START, 0)
    options = wired.options
    split_over = {name: axes_of(each) for name, each in wired.parameters.items()}
    poison = _poison(wired)
    steps, batches = list[StepValues](), list[Any]()
    lowered, overflows = LoweredDtypes(wired.optimizers), set[int]()
    # The plain step is in float64, or has noise of lower dtypes.
    is_noted = wired.layout is not None
    for index in indices:
        batch = _own_batch(wired, index)
        batches.append(copy_of(batch))
        block = (
            _overflowing(wired) if index in skips else _changed(poison, wired, index)
        )
        with block, lowered.noting() if is_noted else nullcontext():
            steps.append(_step(wired, batch, index, noise))
        if lowered.has_overflowed:
            overflows.add(len(steps) - 1)
            lowered.has_overflowed = False
    return RankValues(
        start,
        tuple(steps),
        tuple(batches),
        split_over,
        wired.frozen,
        first_names=wired.names,
        is_poisoned=poison is not None and poison.is_called,
        has_infinite_loss=poison is not None and poison.has_infinite_loss,
        kept=wired.kept,
        options=options,
        lowered=frozenset(lowered.found),
        lowered_scalars=lowered.scalars,
        overflows=frozenset(overflows),
    )


def plain_gradients(
    training: Training, parts: Sequence[Any], step: int, start: NamedTensors
) -> PlainGradients:
    """Return the gradients of a step on one rank, from parameters before it, and of parts of its batch."""
    wired = wired_on(training, None)
    with torch.no_grad():
        for name, parameter in wired.parameters.items():
            if (value := start.get(name)) is not None:
                parameter.copy_(value)
    losses = [_losses(wired, tree_map(training.cast, part)) for part in parts]
    with ForwardLines() as lines:
        terms = _losses(wired, training.whole_batch(step))
    several = terms if len(terms) > 1 else {}
    total = _total(terms)
    with noted_uses(total, wired.parameters, lines) as uses:
        whole = _gradients(wired, total)
    return PlainGradients(
        whole,
        [_gradients(wired, _total(each)) for each in losses],
        {name: _gradients(wired, each) for name, each in several.items()},
        uses,
    )


def _losses(wired: Wired, batch: Any) -> dict[str, torch.Tensor]:
    loss = wired.training.loss
    assert loss is not None
    return losses_of(loss, wired.model, batch, wired.mesh)


def losses_of(
    loss: Callable[..., Any], model: Any, batch: Any, mesh: Any
) -> dict[str, Any]:
    """Return the terms of a user's loss by name."""
    found = call(loss, {"model": model, "batch": batch, "mesh": mesh})
    return dict(found) if isinstance(found, Mapping) else {"loss": found}


def _total(losses: Mapping[str, torch.Tensor]) -> torch.Tensor:
    first, *others = losses.values()
    return torch.stack([first, *others]).sum() if others else first


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
    wired = wired_on(training, None)
    for name, parameter in wired.parameters.items():
        if (start := values.start.get(name)) is not None:
            parameter.data = start.clone()
    found = list[Mapping[Quantity, NamedTensors]]()
    for step in values.steps:
        read = step.tensors[Quantity.STEPPED]
        found.append(_optimized(wired, read, int(step.num_steps)))
    return found


def _optimized(
    wired: Wired, gradients: NamedTensors, number: int
) -> Mapping[Quantity, NamedTensors]:
    names = wired.first_names
    for parameter, name in names.items():
        gradient = gradients.get(name)
        parameter.grad = None if gradient is None else gradient.clone()
    for optimizer in wired.optimizers * number:
        optimizer.step()
    if wired.schedule is not None and number:
        wired.schedule.step()
    made: dict[Quantity, Mapping[str, torch.Tensor]] = {
        Quantity.STATE: optimizer_state(wired.optimizers, names),
        Quantity.PARAMETER: wired.parameters,
    }
    return {
        quantity: {name: each.detach().clone() for name, each in tensors.items()}
        for quantity, tensors in made.items()
    }


def _poison(wired: Wired) -> Poison | None:
    """Return the poison of a gradient, where the variation says so; one rank has the last part."""
    training, layout = wired.training, wired.layout
    variation = training.variation
    if not isinstance(variation, NotFinite):
        return None
    is_last = True
    if layout is not None:
        place, sizes = layout.coordinate(dist.get_rank()), dict(layout.axes)
        own = own_axes(variation.name, training.own)
        axes = training.split_axes(layout) if variation.is_local else own
        is_last = all(place[a] == sizes[a] - 1 for a in axes if a in sizes)
    return Poison(variation, wired.parameters, is_last=is_last)


def _changed(
    poison: Poison | None, wired: Wired, index: int
) -> AbstractContextManager[None]:
    """Return the block of a step: the variation changes gradients in it."""
    if isinstance(variation := wired.training.variation, AllOnes):
        return constant_gradients(
            variation, wired.parameters, [*wired.names.values()], wired.scaler
        )
    if poison is None or index or not hasattr(wired.scaler, "unscale_"):
        return nullcontext()
    return poison.placed(wired.scaler)


def _overflowing(wired: Wired) -> AbstractContextManager[None]:
    """Return the block of a step in which a gradient overflows."""
    names = (name for name, each in wired.parameters.items() if each.requires_grad)
    variation = NotFinite(next(names), math.inf)
    return Poison(variation, wired.parameters, is_last=True).placed(wired.scaler)


def _own_batch(wired: Wired, step: int) -> Any:
    """Return this rank's part of the batch of a step."""
    training, layout = wired.training, wired.layout
    batch = training.whole_batch(step)
    if layout is None:
        return batch
    if callable(training.split):
        return call(training.split, {"batch": batch, "mesh": wired.mesh})
    coordinate = layout.coordinate(dist.get_rank())
    return rank_part(batch, training.split_axes(layout), layout, coordinate)


def _step(wired: Wired, batch: Any, index: int, noise: Noise | None) -> StepValues:
    """Make one step, and return its values."""
    watch = StepWatch(wired.parameters.values(), wired.optimizers, wired.copies)
    seed_torch(wired.training.seed + int(wired.training.draws_others))
    before = torch.get_rng_state()
    with watch.watching(), nullcontext() if noise is None else noise.mode(index):
        returned = _made(wired, batch, index)
    draws = not torch.equal(before, torch.get_rng_state())
    return _values(wired, watch, returned, index, draws=draws)


def _made(wired: Wired, batch: Any, index: int) -> Any:
    """Make the step of the user, or the plain one."""
    training = wired.training
    if training.step is None or wired.layout is None:
        return _plain_step(wired, batch)
    values = {
        "model": wired.model,
        "batch": batch,
        "micro_batches": micro_batches(batch, training.num_micro_batches),
        **wired.user_values(),
        "step_index": index,
        **training.sizes,
    }
    return call(training.step, values)


def _plain_step(wired: Wired, batch: Any) -> dict[str, torch.Tensor]:
    """Make a step as torch's tutorials do: backward, unscale, clip, step, clear."""
    training, scaler = wired.training, wired.scaler
    number = 1 if wired.layout is None else training.num_micro_batches
    for part in micro_batches(batch, number):
        loss = _total(_losses(wired, part)) / number
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


def _values(
    wired: Wired, watch: StepWatch, returned: Any, index: int, *, draws: bool
) -> StepValues:
    """Return the values after a step."""
    parameters, names = wired.parameters, wired.first_names
    gradients = {name: watch.gradient(each) for name, each in parameters.items()}
    _check_dense(gradients)
    read = {name: watch.read.get(each) for name, each in parameters.items()}
    copies = {each: names[p] for each, p in watch.copies.items() if p in names}
    found: dict[Quantity, Mapping[str, torch.Tensor | None]] = {
        Quantity.GRADIENT: gradients,
        Quantity.NORM: {} if watch.norm is None else {"norm": watch.norm},
        Quantity.STEPPED: read if watch.optimizers else {},
        Quantity.RETURNED: dict(_scalars(returned)),
        Quantity.SKIPPED: {"steps": torch.tensor(float(watch.num_steps))},
        Quantity.STATE: optimizer_state(watch.optimizers, names | copies),
        Quantity.PARAMETER: parameters,
    }
    if (scale := wired.scale) is not None:
        found[Quantity.SCALE] = {"scale": torch.tensor(scale)}
    # Before the squares: the host waits for these, so later work of the step is ordered after the copies.
    tensors = {q: wired.wholes(each, q, index) for q, each in found.items()}
    # Small gradients are not clipped, and the optimizer reads them unscaled.
    is_known = isinstance(wired.training.variation, AllOnes)
    squares = {
        name: float(local_part(each).detach().double().square().sum())
        for name, each in (read if is_known else gradients).items()
        if each is not None and names[parameters[name]] == name
    }
    options = {n: watch.options[p] for n, p in parameters.items() if p in watch.options}
    with without_dispatch_modes():  # the program does not read it
        left = {
            name: watch.updated[each]
            for name, each in parameters.items()
            if each in watch.updated and not torch.equal(watch.updated[each], each)
        }
    return StepValues(
        tensors=tensors,
        local_squares=squares,
        rates=wired.rates,
        clips_parts=watch.clips_parts,
        updated=frozenset(options),
        options=options,
        own_options=watch.own_options,
        draws=draws,
        left=left,
        read_elsewhere=frozenset(
            n for n, p in parameters.items() if p in watch.is_read_elsewhere
        ),
        copied=frozenset(copies.values()),
        max_norm=watch.max_norm,
        backwards=(*watch.backwards,),
        functions=tuple(watch.leaves.named(each, names) for each in watch.functions),
        used={n: watch.used[p] for n, p in parameters.items() if p in watch.used},
    )


def _check_dense(gradients: Mapping[str, torch.Tensor | None]) -> None:
    for name, gradient in gradients.items():
        if gradient is not None and gradient.layout is not torch.strided:
            raise UsageError(
                f"expected dense gradients, and that of {name} is sparse; leave sparse=False"
            )


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
