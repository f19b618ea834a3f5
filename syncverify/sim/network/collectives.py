"""The results of collectives: pure functions from all ranks' inputs to outputs."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import torch
from typing_extensions import override

from syncverify.sim.device.torch_internals import without_new_versions
from syncverify.sim.network.reductions import Factor, reduced
from syncverify.trace.source_lines import NoLine, Origin

Tensors = list[torch.Tensor]
# As on NCCL, the parts of these may differ in size, as long as every rank gives each other
# rank the part that the other rank expects.
PART_FOR_EACH_RANK = frozenset({"all_to_all", "all_to_all_single"})


@dataclass(frozen=True, slots=True)
class CollectiveCall:
    """The call of one rank for a collective.

    Attributes:
        operation: torch's name of the operation.
        reduce_op: `SUM`, `AVG`, ...; empty for an operation without a reduction.
        inputs: Tensors that the rank contributes; copies, once the call has been issued.
        outputs: Tensors that receive the results of the rank.
        root: Group rank of the root; None where there is none.
        factor: Factor of the inputs before the sum, for `PREMUL_SUM`.
        source: Line that issued the call.
        is_coalesced: Whether it comes from torch's form for several tensors.
    """

    operation: str
    reduce_op: str
    inputs: Tensors
    outputs: Tensors
    root: int | None = None
    factor: Factor | None = None
    source: Origin = NoLine.UNKNOWN
    is_coalesced: bool = False

    def written_by(self, rank: int) -> Tensors:
        """Return the outputs that the call writes on a rank of the group."""
        if self.operation == "broadcast":
            return [] if rank == self.root else self.outputs
        receives = self.operation not in {"reduce", "gather"} or rank == self.root
        return self.outputs if receives else []

    @override
    def __str__(self) -> str:
        """Say it in words."""
        tensors = self.inputs or self.outputs
        dtype = str(tensors[0].dtype).removeprefix("torch.") if tensors else "nothing"
        reduce_op = f" {self.reduce_op}" if self.reduce_op else ""
        return f"{self.operation}{reduce_op} of {self._sizes} x {dtype}"

    @property
    def _sizes(self) -> str:
        """Numbers of elements: one, or those for each rank and from each rank."""
        sent, received = (
            [t.numel() for t in each] for each in (self.inputs, self.outputs)
        )
        if self.operation in PART_FOR_EACH_RANK:
            return f"{sent} for the ranks and {received} from them"
        return str(sum(sent or received))


_Compute = Callable[[Sequence[CollectiveCall], int], Tensors]


def compute(calls: Sequence[CollectiveCall], seat: int) -> Tensors:
    """Return one value per output of a rank; no value for a rank that receives nothing.

    The calls agree and are listed by seat: all ranks of the group, or sender and receiver.
    """
    return _COMPUTE[calls[seat].operation](calls, seat)


def deliver(values: Tensors, outputs: Tensors) -> None:
    """Write the values of `compute`, without a new version of the output tensors.

    Real process groups write the same way: torch's version counter does not see it. An
    output without a value stays as it is.
    """
    # A wait may come after the block of inference mode in which an output was made.
    is_inference = torch.is_inference_mode_enabled() or any(
        output.is_inference() for output in outputs
    )
    modes = torch.inference_mode(mode=is_inference), torch.no_grad()
    with modes[0], modes[1], without_new_versions(outputs):
        for output, value in zip(outputs, values, strict=False):
            dense = _in_memory_order(output.detach())
            target = output.detach() if dense is None else dense
            target.copy_(value.reshape(target.shape))


def taken(tensor: torch.Tensor) -> torch.Tensor:
    """Copy the elements that a call sends, in the order in which they lie in memory.

    Libraries move memory and know no strides, so the elements of a transposed tensor arrive at
    other indices of a contiguous one. Elements with gaps between them are sent row by row, which
    is right where a library copies them first: see `nccl_checks.py` and `gloo_layouts.py`.

    Returns:
        A tensor of shape (numel,).
    """
    dense = _in_memory_order(tensor.detach())
    return tensor.detach().reshape(-1).clone() if dense is None else dense.clone()


def is_dense(tensor: torch.Tensor) -> bool:
    """Tell whether no gap and no overlap is between the elements of a tensor in memory."""
    return _in_memory_order(tensor.detach()) is not None


def _in_memory_order(tensor: torch.Tensor) -> torch.Tensor | None:
    """View a tensor without gaps as shape (numel,), in the order of memory; None with gaps."""
    strides = tensor.stride()
    dims = sorted(range(tensor.dim()), key=lambda dim: -strides[dim])
    ordered = tensor.permute(dims)
    return ordered.reshape(-1) if ordered.is_contiguous() else None


def _at_root(compute_all: _Compute) -> _Compute:
    return lambda calls, seat: (
        compute_all(calls, seat) if seat == calls[seat].root else []
    )


def _of_root(calls: Sequence[CollectiveCall], seat: int) -> CollectiveCall:
    root = calls[seat].root
    assert root is not None  # torch requires one
    return calls[root]


def _all_reduce(calls: Sequence[CollectiveCall], _seat: int) -> Tensors:
    return [
        reduced(torch.stack(list(parts)), calls[0].reduce_op)
        for parts in zip(*(call.inputs for call in calls), strict=True)
    ]


def _all_gather(calls: Sequence[CollectiveCall], _seat: int) -> Tensors:
    return [part for call in calls for part in call.inputs]


def _all_gather_single(calls: Sequence[CollectiveCall], _seat: int) -> Tensors:
    return [
        torch.cat([part.reshape(-1) for part in parts])
        for parts in zip(*(call.inputs for call in calls), strict=True)
    ]


def _all_to_all(calls: Sequence[CollectiveCall], seat: int) -> Tensors:
    return [call.inputs[seat] for call in calls]


def _reduce_scatter(calls: Sequence[CollectiveCall], seat: int) -> Tensors:
    return [reduced(torch.stack(_all_to_all(calls, seat)), calls[0].reduce_op)]


def _reduce_scatter_single(calls: Sequence[CollectiveCall], seat: int) -> Tensors:
    return [
        reduced(
            torch.stack([part.reshape(len(calls), -1)[seat] for part in parts]),
            calls[0].reduce_op,
        )
        for parts in zip(*(call.inputs for call in calls), strict=True)
    ]


_COMPUTE: dict[str, _Compute] = {
    "all_reduce": _all_reduce,
    "reduce": _at_root(_all_reduce),
    "broadcast": lambda calls, seat: _of_root(calls, seat).inputs,
    "all_gather": _all_gather,
    "all_gather_single": _all_gather_single,
    "gather": _at_root(_all_gather),
    "scatter": lambda calls, seat: [_of_root(calls, seat).inputs[seat]],
    "reduce_scatter": _reduce_scatter,
    "reduce_scatter_single": _reduce_scatter_single,
    "all_to_all": _all_to_all,
    "all_to_all_single": _all_to_all,
    "send": lambda _calls, _seat: [],
    "recv": lambda calls, _seat: calls[0].inputs,  # the sender's
    "barrier": lambda _calls, _seat: [],
}
