"""What may be passed to a synchronizer, checked before anything changes."""

import math
from collections.abc import Mapping
from typing import Literal, NoReturn, get_args

import torch
from torch.distributed.tensor import DTensor

from .errors import InvalidArgumentError

UnusedPolicy = Literal["error", "zeros", "keep_none"]
AxisReduction = Literal["sum", "avg", "none", "check"]
GroupReduction = Literal["sum", "avg"]
Scaling = Literal["before", "after", "split"]
Mode = Literal["all_reduce", "reduce_scatter"]


def checked_size(bucket_size_mb: float) -> float:
    """Return a bucket size.

    Args:
        bucket_size_mb: In MiB; may be infinite.

    Raises:
        InvalidArgumentError: It is no number above 0.
    """
    value = bucket_size_mb
    if not _is_number(value) or math.isnan(value) or value <= 0:
        _refuse("bucket_size_mb", "a number of MiB above 0", value)
    return value


def checked_count(require_accumulations: int) -> int:
    """Return a number of accumulations.

    Args:
        require_accumulations: In each step.

    Raises:
        InvalidArgumentError: It is no positive integer.
    """
    name, value = "require_accumulations", require_accumulations
    if not isinstance(value, int) or isinstance(value, bool) or value < 1:
        _refuse(name, "an integer of 1 or more", value)
    return value


def refuse_other_word(name: str, word: object, words: object) -> None:
    """Refuse a word that is none of those an option knows.

    Args:
        name: How the caller calls the option.
        word: What was given.
        words: A `Literal` of those that there are.

    Raises:
        InvalidArgumentError: It is another one.
    """
    known = get_args(words)
    if word not in known:
        _refuse(name, f"one of {', '.join(map(repr, known))}", word)


def checked_axis_reductions(
    axis_reductions: Mapping[str | int, AxisReduction],
) -> Mapping[str | int, AxisReduction]:
    """Return what to do over which mesh axes, in a copy that the caller cannot change.

    Args:
        axis_reductions: A word for each name, or index on a mesh without names.

    Raises:
        InvalidArgumentError: It is no mapping, or a key or a word cannot be meant.
    """
    name, value = "axis_reductions", axis_reductions
    if not isinstance(value, Mapping):
        _refuse(name, "a mapping from mesh axes to reductions", value)
    for axis, word in value.items():
        is_index = isinstance(axis, int) and not isinstance(axis, bool) and axis >= 0
        if not (is_index or isinstance(axis, str)):
            _refuse(name, "keyed by the names or indices of mesh axes", dict(value))
        refuse_other_word(f"{name}[{axis!r}]", word, AxisReduction)
    return dict(value)


def refuse_no_wire_dtype(wire_dtype: object) -> None:
    """Refuse a dtype in which no process group could sum gradients.

    Args:
        wire_dtype: None, or a floating point dtype of 2 bytes or more.

    Raises:
        InvalidArgumentError: It is neither.
    """
    if isinstance(wire_dtype, torch.dtype):
        if wire_dtype.is_floating_point and wire_dtype.itemsize > 1:
            return
    elif wire_dtype is None:
        return
    expected = "a floating point dtype of 2 bytes or more, or None"
    _refuse("wire_dtype", expected, wire_dtype)


def refuse_contradiction(
    mode: Mode, unused: UnusedPolicy, *, has_comm_hook: bool
) -> None:
    """Refuse options that do not go together.

    Args:
        mode: How buckets are reduced.
        unused: What to do about unused parameters.
        has_comm_hook: Whether the reduction is left to a comm hook.

    Raises:
        InvalidArgumentError: Sums are scattered, and something needs all of them.
    """
    if mode == "reduce_scatter" and unused == "keep_none":
        # The flags would be scattered as well, and every `.grad` is None anyway.
        _refuse("mode", "'all_reduce', as unused='keep_none' asks for", mode)
    if mode == "reduce_scatter" and has_comm_hook:
        _refuse("mode", "'all_reduce', as a comm_hook asks for", mode)


def checked_positive(name: str, value: float) -> float:
    """Return a number above 0, which may be infinite.

    Args:
        name: How the caller calls the argument.
        value: The number.

    Raises:
        InvalidArgumentError: It is no such number.
    """
    if not _is_number(value) or math.isnan(value) or value <= 0:
        _refuse(name, "a number above 0", value)
    return value


def checked_factor(name: str, factor: float | torch.Tensor) -> float | torch.Tensor:
    """Return what gradients can be multiplied by, as a number where that is free.

    Args:
        name: How the caller calls the argument.
        factor: A number, or a tensor that need not be known to this process yet.

    Returns:
        A number, or a tensor without dims in the memory of an accelerator.

    Raises:
        InvalidArgumentError: It is neither, or a number that is not finite.
    """
    value = factor
    if isinstance(value, torch.Tensor) and _is_scalar(value):
        if value.device.type != "cpu":
            # Reading it would wait for the device; so a wrong value stays unseen.
            return value.detach()
        value = value.item()
    if not _is_number(value) or not math.isfinite(value):
        _refuse(name, "a finite number or a real tensor without dims", factor)
    return value


def _is_scalar(value: torch.Tensor) -> bool:
    is_real = not value.is_complex() and value.dtype is not torch.bool
    return is_real and value.dim() == 0 and not isinstance(value, DTensor)


def _is_number(value: object) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)


def _refuse(name: str, expected: str, value: object) -> NoReturn:
    raise InvalidArgumentError(
        f"{name} is not {expected}", expected=expected, got=f"{name}={value!r}"
    )
