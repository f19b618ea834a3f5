"""Collectives as pure functions: from all ranks' inputs to outputs, and whether calls agree.

Sums and averages are those of NCCL where it has them. NCCL divides the sum of whole numbers and
drops the remainder. It scales floating-point numbers before the sum; their other rounding is not
imitated.
"""

import functools
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import torch
import torch.distributed as dist
from typing_extensions import override

from syncverify.sim.device.torch_internals import without_new_versions
from syncverify.trace.source_lines import NoLine, Origin

Factor = float | torch.Tensor


def reduction_of(opts: Any) -> tuple[str, Factor | None]:
    """Return the reduction in torch's options, such as `SUM`, and its factor before a sum."""
    given: Any = dist.ReduceOp.SUM if opts is None else getattr(opts, "reduceOp", opts)
    name = str(getattr(given, "op", given).name)
    return name, given.factor if name == "PREMUL_SUM" else None


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


Tensors = list[torch.Tensor]
# As on NCCL, the parts of these may differ in size, as long as every rank gives each other
# rank the part that the other rank expects.
PART_FOR_EACH_RANK = frozenset({"all_to_all", "all_to_all_single"})


@dataclass(frozen=True, slots=True)
class CollectiveCall:
    """The call of one rank for a collective."""

    operation: str  # torch's name
    reduce_op: str  # `SUM`, `AVG`, ...; empty for an operation without a reduction
    inputs: Tensors  # copies, once the call has been issued
    outputs: Tensors
    root: int | None = None  # group rank
    factor: Factor | None = None  # of the inputs before the sum, for `PREMUL_SUM`
    source: Origin = NoLine.UNKNOWN  # line that issued the call
    is_coalesced: bool = False  # it comes from torch's form for several tensors

    def written_by(self, rank: int) -> Tensors:
        """Return the outputs that the call writes on a rank of the group."""
        if self.operation == "broadcast":
            return [] if rank == self.root else self.outputs
        receives = self.operation not in {"reduce", "gather"} or rank == self.root
        return self.outputs if receives else []

    @override
    def __str__(self) -> str:
        tensors = self.inputs or self.outputs
        dtype = str(tensors[0].dtype).removeprefix("torch.") if tensors else "nothing"
        reduce_op = f" {self.reduce_op}" if self.reduce_op else ""
        return f"{self.operation}{reduce_op} of {self._sizes} x {dtype}"

    @property
    def _sizes(self) -> str:
        """Numbers of elements: one, or those for each rank and from each rank."""
        sent = [each.numel() for each in self.inputs]
        received = [each.numel() for each in self.outputs]
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
    """Return a copy of the elements that a call sends, of shape (numel,), in the order of memory.

    Libraries move memory and know no strides, so the elements of a transposed tensor arrive at
    other indices of a contiguous one. Elements with gaps between them are sent row by row, which
    is right where a library copies them first: see `library_checks.py`.
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


def _by_tensor(calls: Sequence[CollectiveCall]) -> Iterator[Tensors]:
    """Yield the inputs of all ranks, one tensor of each at a time."""
    return map(list, zip(*(call.inputs for call in calls), strict=True))


def _all_reduce(calls: Sequence[CollectiveCall], _seat: int) -> Tensors:
    operation = calls[0].reduce_op
    return [reduced(torch.stack(parts), operation) for parts in _by_tensor(calls)]


def _all_gather(calls: Sequence[CollectiveCall], _seat: int) -> Tensors:
    return [part for call in calls for part in call.inputs]


def _all_gather_single(calls: Sequence[CollectiveCall], _seat: int) -> Tensors:
    return [torch.cat([t.reshape(-1) for t in parts]) for parts in _by_tensor(calls)]


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
        for parts in _by_tensor(calls)
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


# Layouts that must be equal on all ranks.
_SAME_INPUTS = frozenset(
    {"all_reduce", "reduce", "broadcast", "all_gather_single", "gather"}
    | {"reduce_scatter", "reduce_scatter_single"}
)
_SAME_OUTPUTS = frozenset(
    {"all_gather", "all_gather_single", "reduce_scatter_single", "scatter"}
)


def agree(calls: Sequence[CollectiveCall | None], seat: int, other: int) -> bool:
    """Return whether each of two ranks gives the layout that the other rank expects."""
    one, two = calls[seat], calls[other]
    assert one is not None
    assert two is not None
    if {one.operation, two.operation} == {"send", "recv"}:
        return _layout([*one.inputs, *one.outputs]) == _layout(
            [*two.inputs, *two.outputs]
        )
    if _must_be_equal(one) != _must_be_equal(two):
        return False
    if one.operation in PART_FOR_EACH_RANK:
        return _fits(one, two, seat, other) and _fits(two, one, other, seat)
    return True


def _layout(tensors: Tensors) -> list[tuple[torch.dtype, int]]:
    return [(tensor.dtype, tensor.numel()) for tensor in tensors]


def _must_be_equal(call: CollectiveCall) -> tuple[object, ...]:
    inputs = _layout(call.inputs) if call.operation in _SAME_INPUTS else None
    outputs = _layout(call.outputs) if call.operation in _SAME_OUTPUTS else None
    return (call.operation, call.reduce_op, call.root, inputs, outputs)


def _fits(
    giver: CollectiveCall, taker: CollectiveCall, giver_seat: int, taker_seat: int
) -> bool:
    sent, received = giver.inputs[taker_seat], taker.outputs[giver_seat]
    return _layout([sent]) == _layout([received])
