"""A training step as a user describes it: model, wiring, data, loss, optimizer."""

import inspect
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final, Protocol

import torch
from torch import nn
from torch.utils._pytree import tree_map

from syncverify.calling import call
from syncverify.errors import UsageError
from syncverify.faces.simulation.program import Device
from syncverify.faces.whole_step.watching import watch_bases
from syncverify.judge.whole_step.layout import Layout, Own
from syncverify.scenario.settings import DATA
from syncverify.sim.process_wide.generators import seed_torch

Function = Callable[..., Any]
# Axis to the dimension of the batch that is split over it, axes that split its rows, or a function
# of batch and mesh.
Split = Mapping[str, int] | Sequence[str] | Function
# The words of data that a training is played with.
PLAIN, UNEQUAL_TOKENS, PADDING, OVERFLOW, LOCAL_OVERFLOW, NAN, ALL_ONES = DATA
_FUNCTIONS: Final = (
    "build", "parallelize", "batch", "optimizer", "loss", "step", "scaler",
)  # fmt: skip
_MAY_LACK: Final = ("loss", "step", "scaler")
_DTYPES: Final = (torch.float64, torch.float32, torch.bfloat16, torch.float16)


class Variation(Protocol):
    """Other data for a training; one rank gets the same."""

    @property
    def word(self) -> str:
        """A short name."""

    def changed(self, batch: Any) -> Any:
        """Return the batch of a step as it is trained on: most data leave it as it is."""
        return batch


def adamw(parameters: list[nn.Parameter]) -> torch.optim.Optimizer:
    """Make the optimizer of a training that names none."""
    # torch's loop over all parameters at once takes no mix of DTensors and other tensors.
    return torch.optim.AdamW(parameters, lr=0.01, foreach=False)


@dataclass(frozen=True, slots=True)
class Beside:
    """Where an own step makes the values that those of other layouts are compared with."""

    layout: Layout
    num_micro_batches: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Training:
    """A training, as a user describes it by the arguments of `parity`."""

    build: Function
    parallelize: Function
    batch: Function
    loss: Function | None = None
    step: Function | None = None
    optimizer: Function = adamw
    schedule: Function | None = None
    clip: float | None = None
    scaler: Function | None = None
    split: Split | None = None
    own: Own = field(default_factory=dict)
    num_steps: int = 2
    num_micro_batches: int = 1
    dtype: torch.dtype = torch.float64
    # Dtype of the computation, whose inputs are rounded to `dtype`; None for `dtype`.
    computed_in: torch.dtype | None = None
    seed: int = 0
    # Arguments of `build` in the place of their defaults; `parallelize`, `batch` and `step` may take
    # them as well.
    sizes: Mapping[str, int] = field(default_factory=dict)
    num_rows: int | None = None  # of the whole batch to train on; None for all
    weights: str | None = None
    variation: Variation | None = None  # None for the batch as it is
    resume: bool = False
    save: Function | None = None
    load: Function | None = None
    # Where `step` makes the values to compare with; None with a loss.
    beside: Beside | None = None
    draws_others: bool = False  # whether steps draw from the second seed, `seed + 1`
    device: Device = "cuda"

    def __post_init__(self) -> None:
        """Raise UsageError if an argument is of the wrong kind, or out of its range."""
        for name in _FUNCTIONS:
            value = getattr(self, name)
            if not callable(value) and not (value is None and name in _MAY_LACK):
                raise UsageError(f"expected `{name}` to be a function, not {value!r}")
        if self.loss is None and self.step is None:
            raise UsageError("expected a loss, a step, or both")
        if type(self.num_steps) is not int or self.num_steps < 1:
            raise UsageError(
                f"expected `steps` to be a number of 1 or more, not {self.num_steps!r}"
            )
        if self.clip is not None and not self.clip > 0:
            raise UsageError(f"expected `clip` to be more than 0, not {self.clip!r}")
        if self.dtype not in _DTYPES:
            raise UsageError(
                f"expected `dtype` to be one of {', '.join(map(str, _DTYPES))}, not "
                f"{self.dtype}"
            )

    def model(self) -> nn.Module:
        """Build the model in the training's dtype; raise UsageError where it cannot be trained."""
        seed_torch(self.seed)
        model = call(self.build, self.sizes)
        if not isinstance(model, nn.Module):
            raise UsageError(
                f"expected build() to return a torch.nn.Module, not {type(model).__name__}"
            )
        if any(each.is_meta for each in model.parameters()):
            raise UsageError("expected build() to return values, not the device 'meta'")
        if any(each.is_complex() for each in model.parameters()):
            raise UsageError(
                "expected build() to return real parameters, not complex ones; keep real and "
                "imaginary parts as a last dimension, and view them by torch.view_as_complex"
            )
        model = _cast_model(model, self.dtype)
        return _cast_model(model, self.computed_in or self.dtype)

    def whole_batch(self, step: int) -> Any:
        """Make the batch of a step, for all ranks."""
        seed_torch(self.seed + 1 + step)
        made = call(self.batch, {"step_index": step, **self.sizes})
        batch = tree_map(self.cast, tree_map(self._cut, made))
        return batch if self.variation is None else self.variation.changed(batch)

    def _cut(self, leaf: Any) -> Any:
        is_cut = self.num_rows is not None and isinstance(leaf, torch.Tensor)
        return leaf[: self.num_rows] if is_cut and leaf.dim() else leaf

    def cast(self, leaf: Any) -> Any:
        """Return a value of the batch; floating-point and complex tensors in the training's dtype."""
        if not isinstance(leaf, torch.Tensor):
            return leaf
        return _cast(_cast(leaf, self.dtype), self.computed_in or self.dtype)

    def own_optimizers(self, model: nn.Module) -> list[torch.optim.Optimizer]:
        """Make the optimizers of a model."""
        values = {"parameters": [*model.parameters()], "model": model}
        made = call(self.optimizer, values)
        listed = [*made] if isinstance(made, list | tuple) else [made]
        for each in listed:
            watch_bases(each)
        return listed

    def split_axes(self, layout: Layout) -> dict[str, int]:
        """Return the axes of a layout that split the batch, each with its dimension; no function's."""
        split = self.split
        if split is None:
            return {name: 0 for name in layout.names if name.startswith("dp")}
        if callable(split):
            return {}
        axes = split if isinstance(split, Mapping) else dict.fromkeys(split, 0)
        return {name: dim for name, dim in axes.items() if name in layout.names}

    def all_sizes(self) -> dict[str, int]:
        """Return the sizes of the model: the whole numbers that `build` takes."""
        declared = inspect.signature(self.build).parameters.values()
        sizes = {e.name: e.default for e in declared if type(e.default) is int}
        return {**sizes, **self.sizes}


def _cast_model(model: nn.Module, dtype: torch.dtype) -> nn.Module:
    """Return a model in a dtype; `nn.Module.to` would drop the imaginary parts of buffers."""
    kept = [
        (module, name, _cast(buffer, dtype))
        for module in model.modules()
        for name, buffer in module.named_buffers(recurse=False)
        if buffer.is_complex()
    ]
    for module, name, buffer in kept:
        setattr(module, name, buffer.real)
    model = model.to(dtype)
    for module, name, buffer in kept:
        setattr(module, name, buffer)
    return model


def _cast(leaf: torch.Tensor, dtype: torch.dtype) -> torch.Tensor:
    if leaf.is_complex():
        return leaf.to(dtype.to_complex())
    return leaf.to(dtype) if leaf.is_floating_point() else leaf
