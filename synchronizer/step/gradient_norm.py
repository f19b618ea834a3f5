"""The norm of all gradients of a synchronizer, over all shards.

Each rank measures the elements that it owns, buffer by buffer. One number is reduced
for each distinct set of ranks over which gradients are spread.

Up to 2^24 elements are measured at a time, in float64 where the gradients are of float64,
else in float32. So squares of float32 gradients above 1e19 overflow, as in torch. The
results are summed in float64. A complex gradient counts by its absolute values.
"""

import math
from collections.abc import Sequence

import torch
import torch.distributed as dist

from syncverify.synchronizer.bucket.bucket import Bucket
from syncverify.synchronizer.ranks.process_groups import ReductionGroups
from syncverify.synchronizer.ranks.scope import ReduceScope

# A dot product on an accelerator counts elements in 32 bits, and gradients in half
# precision are measured through a copy, which this bounds.
CHUNK_NUMEL = 2**24

# Ranks over which gradients are spread, and their device.
_Place = tuple[ReduceScope | None, torch.device]


def grad_norm(
    buckets: Sequence[Bucket],
    groups: ReductionGroups,
    norm_type: float,
    stages: dist.ProcessGroup | None = None,
) -> torch.Tensor:
    """Return the norm of all gradients of reduced buckets, over all ranks.

    All ranks that share the gradients call it together.

    Args:
        buckets: The reduced buckets of this rank.
        groups: Process groups of the sets of ranks over which gradients are spread.
        norm_type: p of the p-norm, above 0; infinite for the largest absolute value.
        stages: Ranks with other parameters, which count too; None where there are none.

    Returns:
        The norm, float64, without dims, on the first bucket's device; on the CPU without
        buckets.
    """
    op = dist.ReduceOp.MAX if math.isinf(norm_type) else dist.ReduceOp.SUM
    found: dict[_Place, list[torch.Tensor]] = {}
    for bucket in buckets:
        with bucket.borrow() as buffer:
            for run in bucket.norm_runs:
                flat = buffer[run.elements.start : run.elements.stop]
                measured = _measure(flat, norm_type)
                found.setdefault((run.scope, buffer.device), []).append(measured)
    totals = {place: _combined(each, norm_type) for place, each in found.items()}
    parts = [] if totals else [torch.zeros((), dtype=torch.float64)]
    # All ranks take part in the sums in one order, so they cannot deadlock.
    for (scope, _), part in sorted(totals.items(), key=_rank_order):
        if scope is not None:
            dist.all_reduce(part, op, group=groups.get(scope))
        parts.append(part.to(buckets[0].plan.key.device))
    total = _combined(parts, norm_type)
    if stages is not None:
        dist.all_reduce(total, op, group=stages)
    return total if math.isinf(norm_type) else total.pow(1 / norm_type)


def clip_factor(norm: torch.Tensor, max_norm: float) -> float | torch.Tensor:
    """Return the factor that limits the norm of all gradients to `max_norm`, above 0.

    The factor is a number, or a tensor without dims in the memory of an accelerator.

    Source:
        `torch.nn.utils.clip_grads_with_norm_`, including its 1e-6.
    """
    quotient: torch.Tensor = max_norm / (norm + 1e-6)
    factor = quotient.clamp(max=1.0)
    # On CPU a tensor of another dtype would convert a copy of each buffer, and a number is
    # free. On an accelerator a number would make the host wait, and a tensor is free.
    return factor.item() if factor.device.type == "cpu" else factor


def _measure(flat: torch.Tensor, norm_type: float) -> torch.Tensor:
    """Return the sum of p-th powers, or the maximum, of absolute values; float64."""
    if not flat.numel():
        return torch.zeros((), dtype=torch.float64, device=flat.device)
    chunks = flat.split(CHUNK_NUMEL)
    return _combined([_measure_chunk(each, norm_type) for each in chunks], norm_type)


def _measure_chunk(chunk: torch.Tensor, norm_type: float) -> torch.Tensor:
    if chunk.is_complex():
        chunk = chunk.abs()
    if math.isinf(norm_type):
        # Several times faster on CPU than a norm, and a NaN stays a NaN.
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
    total: tuple[_Place, torch.Tensor],
) -> tuple[tuple[int, ...], str]:
    (scope, device), _ = total
    return (scope.ranks if scope else (), str(device))
