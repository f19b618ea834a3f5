"""Reduction operators, element by element, over a stack of all ranks' inputs.

Sums and averages are those of NCCL where it has them. NCCL divides the sum of whole numbers and
drops the remainder. It scales floating-point numbers before the sum; their other rounding is not
imitated.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import torch
import torch.distributed as dist

Factor = float | torch.Tensor


def reduce_op_of(opts: Any) -> Any:
    """Return the reduction in torch's options for a collective."""
    return dist.ReduceOp.SUM if opts is None else getattr(opts, "reduceOp", opts)


def reduce_op_name(reduce_op: Any) -> str:
    """Name a reduction, such as `SUM`."""
    kind = reduce_op.op if hasattr(reduce_op, "op") else reduce_op
    return str(kind.name)


def factor_of(reduce_op: Any) -> Factor | None:
    """Return the factor of this rank's inputs before the sum; None for other reductions."""
    return reduce_op.factor if reduce_op_name(reduce_op) == "PREMUL_SUM" else None


def reduced(stacked: torch.Tensor, reduce_op: str) -> torch.Tensor:
    """Return the reduction over dim 0, in the dtype of the inputs.

    There is one entry per rank, already scaled where the reduction scales.
    """
    dtype = stacked.dtype
    if dtype.is_floating_point and dtype.itemsize == 1:  # torch adds none on a CPU
        return _REDUCTIONS[reduce_op](stacked.float()).to(dtype)
    return _REDUCTIONS[reduce_op](stacked)


def refused(reduce_op: str, dtype: torch.dtype) -> str | None:
    """Name the reduction that is not simulated; None if it is. NCCL's are checked before."""
    scales_integers = reduce_op == "PREMUL_SUM" and not dtype.is_floating_point
    averages_booleans = reduce_op == "AVG" and dtype == torch.bool
    is_known = reduce_op in {"", *_REDUCTIONS}
    if is_known and not scales_integers and not averages_booleans:
        return None
    return f"{reduce_op} of {str(dtype).removeprefix('torch.')}"


def _sum(stacked: torch.Tensor) -> torch.Tensor:
    return stacked.sum(dim=0, dtype=stacked.dtype)


def _average(stacked: torch.Tensor) -> torch.Tensor:
    is_integer = not stacked.dtype.is_floating_point and not stacked.is_complex()
    rounding = "trunc" if is_integer else None
    return torch.div(_sum(stacked), len(stacked), rounding_mode=rounding)


_REDUCTIONS: dict[str, Callable[[torch.Tensor], torch.Tensor]] = {
    "SUM": _sum,
    "PREMUL_SUM": _sum,
    "AVG": _average,
    "PRODUCT": lambda stacked: stacked.prod(dim=0, dtype=stacked.dtype),
    "MIN": lambda stacked: stacked.amin(dim=0),
    "MAX": lambda stacked: stacked.amax(dim=0),
    "BAND": lambda stacked: functools.reduce(torch.bitwise_and, stacked),
    "BOR": lambda stacked: functools.reduce(torch.bitwise_or, stacked),
    "BXOR": lambda stacked: functools.reduce(torch.bitwise_xor, stacked),
}
