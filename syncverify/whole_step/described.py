"""A training that a module describes: its names are the arguments of `parity`."""

from __future__ import annotations

import difflib
import inspect
from dataclasses import dataclass, fields
from types import ModuleType
from typing import Any, Final

from syncverify.errors import UsageError
from syncverify.simulation.program import Device
from syncverify.whole_step.layout import Layout, all_layouts
from syncverify.whole_step.training import Training

_NEEDED: Final = ("build", "parallelize", "batch")
# Names of a module that are no field of a training, or another one.
_OTHERS: Final = ("layouts", "device", "steps", "micro_batches")
# How close a name of a function has to be to count as a typing error.
_LIKENESS: Final = 0.8


@dataclass(frozen=True, slots=True)
class Described:
    """A training with its layouts.

    Attributes:
        training: The training.
        layouts: Its layouts.
        numbers: Its numbers of micro-batches.
        device: Device that torch names to it.
    """

    training: Training
    layouts: tuple[Layout, ...]
    numbers: tuple[int, ...] = (1,)
    device: Device = "cuda"


def described(module: ModuleType) -> Described:
    """Return the training that a module describes.

    Raises:
        UsageError: It lacks a name, or one is wrong.
    """
    names = [each.name for each in fields(Training)]
    _check(module, [*names, *_OTHERS])
    values = {name: getattr(module, name) for name in names if hasattr(module, name)}
    if hasattr(module, "steps"):
        values["num_steps"] = module.steps
    training = Training(**values)
    if training.loss is None and training.step is None:
        raise UsageError(f"{module.__name__} has neither `loss` nor `step`")
    numbers = getattr(module, "micro_batches", (1,))
    return Described(
        training,
        tuple(layouts_of(getattr(module, "layouts", ()), ())),
        (numbers,) if isinstance(numbers, int) else tuple(numbers),
        getattr(module, "device", "cuda"),
    )


def layouts_of(listed: Any, axes: tuple[str, ...]) -> list[Layout]:
    """Return the layouts of texts, mappings, or of a number of ranks.

    Args:
        listed: Layouts, or `all:N` for all of N ranks at most.
        axes: Axes of `all:N`.

    Raises:
        UsageError: One is wrong.
    """
    found = list[Layout]()
    for each in listed:
        if isinstance(each, str) and each.startswith("all"):
            found += all_layouts(axes, _most_ranks(each))
        else:
            found.append(
                Layout.parse(each) if isinstance(each, str) else Layout.of(each)
            )
    return [*dict.fromkeys(found)]


def _most_ranks(text: str) -> int:
    _, _, number = text.partition(":")
    if not number.isdecimal():
        raise UsageError(f"expected a number of ranks, such as all:4, not {text!r}")
    return int(number)


def _check(module: ModuleType, names: list[str]) -> None:
    for name, value in vars(module).items():
        is_own = getattr(value, "__module__", None) == module.__name__
        if name in names or not (inspect.isfunction(value) and is_own):
            continue
        near = difflib.get_close_matches(name, names, n=1, cutoff=_LIKENESS)
        if near and not hasattr(module, near[0]):
            raise UsageError(
                f"{module.__name__} has a function {name!r}: is {near[0]!r} meant?"
            )
    missing = [name for name in _NEEDED if not hasattr(module, name)]
    if missing:
        raise UsageError(
            f"{module.__name__} lacks {missing[0]!r}; a training has `build`, "
            "`parallelize`, `batch`, and `loss` or `step`"
        )
