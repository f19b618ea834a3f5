"""The norm of all gradients of a synchronizer, wherever their shards are.

Each rank measures what it owns, buffer by buffer, and one number travels for each
distinct set of ranks over which gradients are spread. Numbers are collected in float64
and each part is measured in float32, or float64 where the gradient is: squares of
float32 gradients above 1e19 overflow, as they do in torch.
"""

import math
from collections.abc import Sequence

import torch
import torch.distributed as dist

from .bucket import Bucket
from .process_groups import ReductionGroups
from .scope import ReduceScope

# A dot product on an accelerator counts elements in 32 bits, and gradients in half
# precision are measured through a copy, which this bounds.
CHUNK_NUMEL = 2**24

_Totals = dict[tuple[ReduceScope | None, torch.device], torch.Tensor]


def grad_norm(
    buckets: Sequence[Bucket], groups: ReductionGroups, norm_type: float
) -> torch.Tensor:
    """Measure the gradients of all buckets, together with the ranks that share them.

    Args:
        buckets: Reduced.
        groups: Where to find the process groups to add up over.
        norm_type: p of the p-norm, above 0; infinite for the largest absolute value.

    Returns:
        float64, without dims, on the first bucket's device.
    """
    totals = _local_totals(buckets, norm_type)
    if not totals:
        return torch.zeros((), dtype=torch.float64)
    parts = []
    # Ranks take part in several sums in one order that all have in common.
    for scope, device in sorted(totals, key=_rank_order):
        part = totals[scope, device]
        if scope is not None:
            op = dist.ReduceOp.MAX if math.isinf(norm_type) else dist.ReduceOp.SUM
            dist.all_reduce(part, op, group=groups.get(scope))
        parts.append(part.to(buckets[0].plan.key.device))
    total = _combined(parts, norm_type)
    return total if math.isinf(norm_type) else total.pow(1 / norm_type)


def clip_factor(norm: torch.Tensor, max_norm: float) -> float | torch.Tensor:
    """Return what gradients are multiplied by so that their norm is at most `max_norm`.

    Args:
        norm: Of the gradients, without dims.
        max_norm: Above 0.

    Returns:
        A number, or a tensor without dims in the memory of an accelerator.

    Source:
        `torch.nn.utils.clip_grads_with_norm_`, its 1e-6 included.
    """
    quotient: torch.Tensor = max_norm / (norm + 1e-6)
    factor = quotient.clamp(max=1.0)
    # On CPU a tensor of another dtype would cost a converted copy of each buffer, and a
    # number is free. On an accelerator it is the other way round.
    return factor.item() if factor.device.type == "cpu" else factor


def _local_totals(buckets: Sequence[Bucket], norm_type: float) -> _Totals:
    parts: dict[tuple[ReduceScope | None, torch.device], list[torch.Tensor]] = {}
    for bucket in buckets:
        with bucket.borrow() as buffer:
            for run in bucket.norm_runs:
                flat = buffer[run.elements.start : run.elements.stop]
                measured = _measure(flat, norm_type)
                parts.setdefault((run.scope, buffer.device), []).append(measured)
    return {key: _combined(found, norm_type) for key, found in parts.items()}


def _measure(flat: torch.Tensor, norm_type: float) -> torch.Tensor:
    """Return the sum of p-th powers, or the maximum, of absolute values; float64."""
    chunks = flat.split(CHUNK_NUMEL) if flat.numel() else ()
    powers = [_measure_chunk(chunk, norm_type) for chunk in chunks]
    if not powers:
        return torch.zeros((), dtype=torch.float64, device=flat.device)
    return _combined(powers, norm_type)


def _measure_chunk(chunk: torch.Tensor, norm_type: float) -> torch.Tensor:
    if math.isinf(norm_type):
        # Several times faster on CPU than a norm, and not-a-number passes as well.
        return torch.stack(torch.aminmax(chunk)).abs().amax().double()
    if chunk.dtype is not torch.float64:
        chunk = chunk.float()
    if norm_type == 2:
        return torch.dot(chunk, chunk).double()
    norm: torch.Tensor = torch.linalg.vector_norm(chunk, norm_type)
    return norm.double().pow(norm_type)


def _combined(parts: list[torch.Tensor], norm_type: float) -> torch.Tensor:
    stacked = torch.stack(parts)
    return stacked.amax() if math.isinf(norm_type) else stacked.sum()


def _rank_order(
    key: tuple[ReduceScope | None, torch.device],
) -> tuple[tuple[int, ...], str]:
    scope, device = key
    return (scope.ranks if scope else (), str(device))
