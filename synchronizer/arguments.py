"""What may be passed to a synchronizer, checked before anything changes."""

import math
from typing import Literal, NoReturn, get_args

import torch
from torch.distributed.tensor import DTensor

from .errors import InvalidArgumentError

UnusedPolicy = Literal["error", "zeros", "keep_none"]
UNUSED_POLICIES: tuple[UnusedPolicy, ...] = get_args(UnusedPolicy)
Mode = Literal["all_reduce", "reduce_scatter"]
MODES: tuple[Mode, ...] = get_args(Mode)


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


def checked_policy(unused: UnusedPolicy) -> UnusedPolicy:
    """Return what to do about unused parameters.

    Args:
        unused: One of `UNUSED_POLICIES`.

    Raises:
        InvalidArgumentError: It is another value.
    """
    if unused not in UNUSED_POLICIES:
        _refuse("unused", f"one of {', '.join(map(repr, UNUSED_POLICIES))}", unused)
    return unused


def checked_mode(mode: Mode, unused: UnusedPolicy, *, has_comm_hook: bool) -> Mode:
    """Return how buckets are reduced.

    Args:
        mode: One of `MODES`.
        unused: What to do about unused parameters.
        has_comm_hook: Whether the reduction is left to a comm hook.

    Raises:
        InvalidArgumentError: It is another value, or does not go with the others.
    """
    if mode not in MODES:
        _refuse("mode", f"one of {', '.join(map(repr, MODES))}", mode)
    if mode == "reduce_scatter" and unused == "keep_none":
        # The flags would be scattered as well, and every `.grad` is None anyway.
        _refuse("mode", "'all_reduce', as unused='keep_none' asks for", mode)
    if mode == "reduce_scatter" and has_comm_hook:
        _refuse("mode", "'all_reduce', as a comm_hook asks for", mode)
    return mode


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
