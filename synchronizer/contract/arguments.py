"""Checks of arguments, made before anything changes.

A failed check raises `InvalidArgumentError`.
"""

import math
from collections.abc import Collection, Set
from numbers import Integral, Real
from typing import Literal, NoReturn

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
        refuse(name, "an integer of 1 or more", value)
    return int(value)


def refuse_unknown_names(name: str, given: Collection[str], known: Set[str]) -> None:
    """Refuse keys that are no names of parameters."""
    unknown = [each for each in given if each not in known]
    if unknown:
        refuse(name, "keyed by the names of the bound parameters", unknown)


def checked_positive(name: str, value: float, unit: str = "") -> float:
    """Return a number above 0, which may be infinite; `unit` is for the message."""
    if not _is_number(value) or math.isnan(value) or value <= 0:
        refuse(name, f"a number{unit} above 0", value)
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
        refuse(name, "a finite number or a real tensor without dims", factor)
    return float(value)


def _is_scalar(value: torch.Tensor) -> bool:
    is_real = not value.is_complex() and value.dtype is not torch.bool
    return is_real and value.dim() == 0 and not isinstance(value, DTensor)


def _is_number(value: object) -> bool:
    return isinstance(value, Real) and not isinstance(value, bool)


def refuse(name: str, expected: str, value: object) -> NoReturn:
    """Refuse the value of an argument, which is not what is expected."""
    raise InvalidArgumentError(
        f"{name} is not {expected}", expected=expected, got=f"{name}={value!r}"
    )
