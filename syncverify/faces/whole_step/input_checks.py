"""Checks of a training, before a step of it is played on a mesh."""

import hashlib
from collections.abc import Iterable, Iterator, Mapping, Sequence
from fnmatch import fnmatchcase
from typing import Any, Final

import psutil
import torch
from torch import nn
from torch.utils._pytree import tree_leaves

from syncverify.errors import UsageError
from syncverify.faces.whole_step.steps import losses_of
from syncverify.faces.whole_step.training import Training
from syncverify.judge.whole_step.layout import Layout
from syncverify.judge.whole_step.parts import micro_batches, rank_part
from syncverify.sim.process_wide.generators import seed_torch

# Copies of each parameter on a rank: itself, its gradient, and two of an optimizer.
_OWN_COPIES: Final = 4
# Copies that a rank keeps to compare: at the start, and of each step the gradient before and
# after clipping, two of the optimizer, and the parameter.
_KEPT_AT_START: Final = 1
_KEPT_OF_A_STEP: Final = 5


def check_training(
    training: Training, layouts: Sequence[Layout], numbers: Iterable[int]
) -> None:
    """Raise UsageError if model, batch or loss is wrong, differs between calls, or does not fit."""
    model = training.model()
    _check_memory(model, training, layouts)
    _check_own(model, training, layouts)
    other = training.model()
    _check_same("build", _tensors(model), _tensors(other))
    batch = training.whole_batch(0)
    if not any(isinstance(each, torch.Tensor) for each in tree_leaves(batch)):
        raise UsageError(
            f"expected batch() to return tensors, in lists, tuples or dicts, not {type(batch).__name__}"
        )
    _check_same("batch", _numbered(batch), _numbered(training.whole_batch(0)))
    _check_parts(batch, training, layouts, [*numbers])
    if training.loss is not None:
        _check_loss([model, other], batch, training)


def digests_of(model: nn.Module) -> dict[str, str]:
    """Return a digest of the values of each parameter and buffer, by name."""
    return {name: _digest(each) for name, each in _tensors(model)}


def _digest(tensor: torch.Tensor) -> str:
    raw = tensor.detach().cpu().contiguous().flatten().view(torch.uint8)
    return hashlib.sha256(raw.numpy().tobytes()).hexdigest()


def check_same_on_ranks(builds: Mapping[int, Mapping[str, str]]) -> None:
    """Raise UsageError if the digests of models differ between the ranks that made one."""
    known_on = min(builds, default=0)
    known = builds.get(known_on, {})
    for rank, build in builds.items():
        names = {**known, **build}
        other = (name for name in names if known.get(name) != build.get(name))
        if (first := next(other, None)) is not None:
            raise UsageError(
                f"build() makes another model on rank {rank} than on rank {known_on} "
                f"(first: {first}), though torch is seeded before each call; build one model, "
                "and let parallelize() take each rank's part"
            )


def _check_memory(
    model: nn.Module, training: Training, layouts: Sequence[Layout]
) -> None:
    size = sum(each.numel() * each.element_size() for each in model.parameters())
    kept = _KEPT_AT_START + _KEPT_OF_A_STEP * training.num_steps
    ranks = max((layout.num_ranks for layout in layouts), default=1)
    needed = size * (_OWN_COPIES + kept) * ranks
    free = psutil.virtual_memory().available
    if needed > free:
        raise UsageError(
            f"{_gigabytes(size)} of parameters need about {_gigabytes(needed)} on {ranks} ranks "
            f"with {training.num_steps} steps, and {_gigabytes(free)} of memory are free; make "
            "the model smaller (fewer layers, less width), or take fewer steps or ranks"
        )


def _gigabytes(size: int) -> str:
    return f"{size / 2**30:.3g} GiB"


def _check_own(model: nn.Module, training: Training, layouts: Sequence[Layout]) -> None:
    """Check that layouts divide the parameters that `own` splits."""
    if callable(training.own):
        return
    named = dict(model.named_parameters(remove_duplicate=False))
    for pattern, axes in training.own.items():
        names = [name for name in named if fnmatchcase(name, pattern)]
        if not names:
            raise UsageError(
                f"own names {pattern!r}, and build() makes no such parameter; it makes: "
                f"{', '.join([*named][:6])}{', ...' if len(named) > 6 else ''}"
            )
        for name in names:
            for layout in layouts:
                _check_shard(name, named[name], axes, layout)


def _check_shard(
    name: str, value: torch.Tensor, axes: Mapping[str, int], layout: Layout
) -> None:
    for axis, dim in axes.items():
        size = dict(layout.axes).get(axis, 1)
        if dim >= value.dim() or value.shape[dim] % size:
            raise UsageError(
                f"layout {layout} does not divide dimension {dim} of {name}, which has shape "
                f"{[*value.shape]} and which `own` splits over {axis!r}"
            )


def _check_parts(
    batch: Any, training: Training, layouts: Sequence[Layout], numbers: Sequence[int]
) -> None:
    """Check that layouts and micro-batches divide the batch."""
    if callable(training.split):
        return
    for layout in layouts:
        axes = training.split_axes(layout)
        part = rank_part(batch, axes, layout, layout.coordinate(0))
        for number in numbers:
            micro_batches(part, number)


def _tensors(model: nn.Module) -> Iterator[tuple[str, torch.Tensor]]:
    yield from model.named_parameters()
    yield from model.named_buffers()


def _numbered(batch: Any) -> Iterator[tuple[str, torch.Tensor]]:
    for index, leaf in enumerate(tree_leaves(batch)):
        if isinstance(leaf, torch.Tensor):
            yield f"tensor {index}", leaf


def _check_same(
    function: str,
    first: Iterable[tuple[str, torch.Tensor]],
    again: Iterable[tuple[str, torch.Tensor]],
) -> None:
    ours, theirs = dict(first), dict(again)
    for name in {**ours, **theirs}:
        if not _is_same(ours.get(name), theirs.get(name)):
            raise UsageError(
                f"{function}() returns different values in each call (first: {name}), though torch "
                "is seeded before each; draw random numbers from torch's default generator, or "
                "seed yours inside"
            )


def _is_same(one: torch.Tensor | None, two: torch.Tensor | None) -> bool:
    if one is None or two is None or one.shape != two.shape or one.dtype != two.dtype:
        return False
    return torch.equal(one.nan_to_num(), two.nan_to_num())


def _check_loss(models: Sequence[nn.Module], batch: Any, training: Training) -> None:
    """Check that the loss is a scalar with a gradient, and the same for equal models."""
    assert training.loss is not None
    found = list[dict[str, Any]]()
    for model in models:
        seed_torch(training.seed)
        found.append(losses_of(training.loss, model, batch, None))
    for name, value in found[0].items():
        if not isinstance(value, torch.Tensor):
            raise UsageError(
                f"expected loss() to return a tensor, not {type(value).__name__}"
            )
        if value.numel() != 1:
            raise UsageError(
                "expected loss() to return a tensor with one element, not one of shape "
                f"{[*value.shape]}; take its mean or its sum"
            )
        if not value.requires_grad:
            raise UsageError(
                f"expected loss() to return a value that depends on the parameters; "
                f"its {name} has no gradient"
            )
    _check_same("loss", found[0].items(), found[1].items())
