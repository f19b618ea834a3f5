"""Checks of arguments, made before anything changes.

A failed check raises `InvalidArgumentError`.
"""

import math
from collections.abc import Collection, Mapping, Set
from numbers import Integral, Real
from typing import Literal, NoReturn, get_args

import torch
from torch.distributed.tensor import DTensor

from syncverify.synchronizer.contract.errors import InvalidArgumentError

UnusedPolicy = Literal["error", "zeros", "keep_none"]
ReplicaPolicy = Literal["error", "broadcast", "keep"]
AxisReduction = Literal["sum", "avg", "none"]
GroupReduction = Literal["sum", "avg"]
Scaling = Literal["after", "split"]
GradientHook = Literal["python", "cpp"]
Mode = Literal["all_reduce", "reduce_scatter"]


def checked_count(require_accumulations: object) -> int:
    """Return a number of accumulations, an integer of 1 or more."""
    name, value = "require_accumulations", require_accumulations
    # Integers of numpy are registered as such, and are no instances of `int`.
    if isinstance(value, bool) or not isinstance(value, Integral) or value < 1:
        _refuse(name, "an integer of 1 or more", value)
    return int(value)


def refuse_unknown_word(name: str, word: object, words: object) -> None:
    """Refuse a word that is not in `words`, a `Literal`; `name` is the option."""
    known = get_args(words)
    if word not in known:
        _refuse(name, f"one of {', '.join(map(repr, known))}", word)


def refuse_unknown_names(name: str, given: Collection[str], known: Set[str]) -> None:
    """Refuse keys that are no names of parameters."""
    unknown = [each for each in given if each not in known]
    if unknown:
        _refuse(name, "keyed by the names of the bound parameters", unknown)


def checked_axis_reductions(
    axis_reductions: Mapping[str | int, AxisReduction],
) -> Mapping[str | int, AxisReduction]:
    """Return a copy of the reductions by axis, which the caller cannot change."""
    name, value = "axis_reductions", axis_reductions
    if not isinstance(value, Mapping):
        _refuse(name, "a mapping from mesh axes to reductions", value)
    for axis, word in value.items():
        is_index = isinstance(axis, int) and not isinstance(axis, bool) and axis >= 0
        if not (is_index or isinstance(axis, str)):
            _refuse(name, "keyed by the names or indices of mesh axes", dict(value))
        refuse_unknown_word(f"{name}[{axis!r}]", word, AxisReduction)
    return dict(value)


def refuse_unusable_wire_dtype(wire_dtype: object) -> None:
    """Refuse all values but None and floating point dtypes of 2 bytes or more."""
    if isinstance(wire_dtype, torch.dtype):
        if wire_dtype.is_floating_point and wire_dtype.itemsize > 1:
            return
    elif wire_dtype is None:
        return
    expected = "a floating point dtype of 2 bytes or more, or None"
    _refuse("wire_dtype", expected, wire_dtype)


def refuse_unusable_reduction(
    comm_hook: object, mode: Mode, unused: UnusedPolicy
) -> None:
    """Refuse what is no function, and scattered sums beside what needs all sums."""
    if not (comm_hook is None or callable(comm_hook)):
        _refuse("comm_hook", "a function of a HookBucket, or None", comm_hook)
    if mode == "reduce_scatter" and unused == "keep_none":
        # A reduce-scatter would scatter the flags too, and it sets every `.grad` to None.
        _refuse("mode", "'all_reduce', which unused='keep_none' requires", mode)
    if mode == "reduce_scatter" and comm_hook is not None:
        _refuse("mode", "'all_reduce', which a comm_hook requires", mode)


def checked_positive(name: str, value: float, unit: str = "") -> float:
    """Return a number above 0, which may be infinite; `unit` is for the message."""
    if not _is_number(value) or math.isnan(value) or value <= 0:
        _refuse(name, f"a number{unit} above 0", value)
    return float(value)


def checked_factor(name: str, factor: float | torch.Tensor) -> float | torch.Tensor:
    """Return a finite number, or a tensor without dims in memory of an accelerator."""
    value = factor
    if isinstance(value, torch.Tensor) and _is_scalar(value):
        if value.device.type != "cpu":
            # `item()` would wait for the device, so the value on a device is not checked.
            return value.detach()
        value = value.item()
    if not _is_number(value) or not math.isfinite(value):
        _refuse(name, "a finite number or a real tensor without dims", factor)
    return float(value)


def _is_scalar(value: torch.Tensor) -> bool:
    is_real = not value.is_complex() and value.dtype is not torch.bool
    return is_real and value.dim() == 0 and not isinstance(value, DTensor)


def _is_number(value: object) -> bool:
    return isinstance(value, Real) and not isinstance(value, bool)


def _refuse(name: str, expected: str, value: object) -> NoReturn:
    raise InvalidArgumentError(
        f"{name} is not {expected}", expected=expected, got=f"{name}={value!r}"
    )
