"""What each collective computes: pure functions from all ranks' inputs to outputs."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import torch
import torch.distributed as dist
from typing_extensions import override

Tensors = list[torch.Tensor]


@dataclass(frozen=True, slots=True)
class Call:
    """One rank's part of a collective, as it was issued.

    Attributes:
        operation: torch's name of it.
        reduce_op: `SUM`, `AVG`, ...; empty where nothing is reduced.
        inputs: What the rank contributed, copied when it issued the call.
        outputs: Where its results go.
        root: Group rank of the root; 0 where there is none.
        source: The line that issued it.
    """

    operation: str
    reduce_op: str
    inputs: Tensors
    outputs: Tensors
    root: int = 0
    source: str = "unknown line"

    def written_by(self, rank: int) -> Tensors:
        """Return the outputs that a rank of the group receives anything in."""
        if self.operation == "broadcast":
            return [] if rank == self.root else self.outputs
        receives = self.operation not in {"reduce", "gather"} or rank == self.root
        return self.outputs if receives else []

    def agreement(self) -> tuple[object, ...]:
        """Return what all ranks must have in common."""
        rooted = self.operation in {
            "broadcast",
            "scatter",
        }  # only the root's inputs count
        shapes = () if rooted else tuple((t.dtype, t.numel()) for t in self.inputs)
        outputs = (
            ()
            if self.operation in {"reduce", "gather"}
            else tuple((t.dtype, t.numel()) for t in self.outputs)
        )
        return (self.operation, self.reduce_op, self.root, shapes, outputs)

    @override
    def __str__(self) -> str:
        """Say it in words."""
        numel = sum(t.numel() for t in self.inputs)
        dtype = (
            str(self.inputs[0].dtype).removeprefix("torch.")
            if self.inputs
            else "nothing"
        )
        return f"{self.operation}{' ' if self.reduce_op else ''}{self.reduce_op} of {numel} x {dtype}"


_REDUCTIONS: dict[str, Callable[[torch.Tensor], torch.Tensor]] = {
    "SUM": lambda stacked: stacked.sum(dim=0, dtype=stacked.dtype),
    "AVG": lambda stacked: stacked.sum(dim=0, dtype=stacked.dtype) / len(stacked),
    "PRODUCT": lambda stacked: stacked.prod(dim=0, dtype=stacked.dtype),
    "MIN": lambda stacked: stacked.amin(dim=0),
    "MAX": lambda stacked: stacked.amax(dim=0),
    "BAND": lambda stacked: _fold(torch.bitwise_and, stacked),
    "BOR": lambda stacked: _fold(torch.bitwise_or, stacked),
    "BXOR": lambda stacked: _fold(torch.bitwise_xor, stacked),
}
SUPPORTED_REDUCTIONS = frozenset(_REDUCTIONS)


def reduce_op_name(opts: Any) -> str:
    """Name the reduction that torch's options for a collective ask for."""
    reduce_op = dist.ReduceOp.SUM if opts is None else getattr(opts, "reduceOp", opts)
    kind = reduce_op.op if hasattr(reduce_op, "op") else reduce_op
    return str(kind).rpartition(".")[2]


def compute(calls: Sequence[Call], rank: int) -> Tensors:
    """Compute what one rank receives.

    Args:
        calls: One per rank of the group, in group order, in agreement.
        rank: Group rank.

    Returns:
        One value per output of that rank; none where it receives nothing.
    """
    return _COMPUTE[calls[rank].operation](calls, rank)


def deliver(values: Tensors, outputs: Tensors) -> None:
    """Write what a rank receives, as real process groups do: torch counts no write.

    Args:
        values: What `compute` returned.
        outputs: Where they go; one that receives nothing is left alone.
    """
    preserved = torch.autograd._unsafe_preserve_version_counter(tuple(outputs))  # noqa: SLF001
    with torch.no_grad(), preserved:
        for output, value in zip(outputs, values, strict=False):
            output.detach().copy_(value.reshape(output.shape))


def _all_reduce(calls: Sequence[Call], _rank: int) -> Tensors:
    reduction = _REDUCTIONS[calls[0].reduce_op]
    return [
        reduction(torch.stack(list(parts)))
        for parts in zip(*(call.inputs for call in calls), strict=True)
    ]


def _reduce(calls: Sequence[Call], rank: int) -> Tensors:
    return _all_reduce(calls, rank) if rank == calls[rank].root else []


def _broadcast(calls: Sequence[Call], rank: int) -> Tensors:
    return calls[calls[rank].root].inputs


def _all_gather(calls: Sequence[Call], _rank: int) -> Tensors:
    return [part for call in calls for part in call.inputs]


def _all_gather_single(calls: Sequence[Call], _rank: int) -> Tensors:
    return [
        torch.cat([part.reshape(-1) for part in parts])
        for parts in zip(*(call.inputs for call in calls), strict=True)
    ]


def _gather(calls: Sequence[Call], rank: int) -> Tensors:
    return _all_gather(calls, rank) if rank == calls[rank].root else []


def _scatter(calls: Sequence[Call], rank: int) -> Tensors:
    return [calls[calls[rank].root].inputs[rank]]


def _reduce_scatter(calls: Sequence[Call], rank: int) -> Tensors:
    reduction = _REDUCTIONS[calls[0].reduce_op]
    return [reduction(torch.stack([call.inputs[rank] for call in calls]))]


def _reduce_scatter_single(calls: Sequence[Call], rank: int) -> Tensors:
    reduction = _REDUCTIONS[calls[0].reduce_op]
    return [
        reduction(torch.stack([part.reshape(len(calls), -1)[rank] for part in parts]))
        for parts in zip(*(call.inputs for call in calls), strict=True)
    ]


def _barrier(_calls: Sequence[Call], _rank: int) -> Tensors:
    return []


_COMPUTE: dict[str, Callable[[Sequence[Call], int], Tensors]] = {
    "all_reduce": _all_reduce,
    "reduce": _reduce,
    "broadcast": _broadcast,
    "all_gather": _all_gather,
    "all_gather_single": _all_gather_single,
    "gather": _gather,
    "scatter": _scatter,
    "reduce_scatter": _reduce_scatter,
    "reduce_scatter_single": _reduce_scatter_single,
    "barrier": _barrier,
}


def _fold(
    combine: Callable[[torch.Tensor, torch.Tensor], torch.Tensor], stacked: torch.Tensor
) -> torch.Tensor:
    result = stacked[0]
    for part in stacked[1:]:
        result = combine(result, part)
    return result
