"""What each collective computes: pure functions from all ranks' inputs to outputs."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import torch
from typing_extensions import override

from syncverify.sim.reductions import Factor, reduced

Tensors = list[torch.Tensor]


@dataclass(frozen=True, slots=True)
class Call:
    """One rank's part of a collective, as it was issued.

    Attributes:
        operation: torch's name of it.
        reduce_op: `SUM`, `AVG`, ...; empty where nothing is reduced.
        inputs: What the rank contributed, copied when it issued the call.
        outputs: Where its results go.
        root: Group rank of the root; None where there is none.
        factor: By what its inputs are multiplied first, of `PREMUL_SUM`.
        source: The line that issued it.
    """

    operation: str
    reduce_op: str
    inputs: Tensors
    outputs: Tensors
    root: int | None = None
    factor: Factor | None = None
    source: str = "unknown line"

    def written_by(self, rank: int) -> Tensors:
        """Return the outputs that a rank of the group receives anything in."""
        if self.operation == "broadcast":
            return [] if rank == self.root else self.outputs
        receives = self.operation not in {"reduce", "gather"} or rank == self.root
        return self.outputs if receives else []

    @override
    def __str__(self) -> str:
        """Say it in words."""
        tensors = self.inputs or self.outputs
        numel = sum(t.numel() for t in tensors)
        dtype = str(tensors[0].dtype).removeprefix("torch.") if tensors else "nothing"
        reduce_op = f" {self.reduce_op}" if self.reduce_op else ""
        return f"{self.operation}{reduce_op} of {numel} x {dtype}"


def agree(calls: Sequence[Call | None], seat: int, other: int) -> bool:
    """Tell whether the calls of two ranks fit together.

    Args:
        calls: By seat; both have arrived.
        seat: One of them.
        other: Another one.

    Returns:
        Whether what one gives is what the other takes.
    """
    one, two = calls[seat], calls[other]
    assert one is not None
    assert two is not None
    if {one.operation, two.operation} == {"send", "recv"}:
        return _layout([*one.inputs, *one.outputs]) == _layout(
            [*two.inputs, *two.outputs]
        )
    if _terms(one) != _terms(two):
        return False
    if one.operation in _PART_FOR_EACH_RANK:
        return _fits(one, two, seat, other) and _fits(two, one, other, seat)
    return True


def compute(calls: Sequence[Call], seat: int) -> Tensors:
    """Compute what one rank receives.

    Args:
        calls: One per rank of the group, in group order, in agreement; of a message, the
            sender's and the receiver's.
        seat: Position of the rank among them.

    Returns:
        One value per output of that rank; none where it receives nothing.
    """
    return _COMPUTE[calls[seat].operation](calls, seat)


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


# What ranks must have in common. As on NCCL, the parts of list forms may differ in size
# as long as every rank expects of each other one what that one gives.
_PART_FOR_EACH_RANK = frozenset({"all_to_all", "all_to_all_single"})
_SAME_INPUTS = frozenset(
    {"all_reduce", "reduce", "broadcast", "all_gather_single", "gather"}
    | {"reduce_scatter", "reduce_scatter_single"}
)
_SAME_OUTPUTS = frozenset(
    {"all_gather", "all_gather_single", "reduce_scatter_single", "scatter"}
)


def _layout(tensors: Tensors) -> list[tuple[torch.dtype, int]]:
    return [(tensor.dtype, tensor.numel()) for tensor in tensors]


def _terms(call: Call) -> tuple[object, ...]:
    inputs = _layout(call.inputs) if call.operation in _SAME_INPUTS else None
    outputs = _layout(call.outputs) if call.operation in _SAME_OUTPUTS else None
    return (call.operation, call.reduce_op, call.root, inputs, outputs)


def _fits(giver: Call, taker: Call, giver_seat: int, taker_seat: int) -> bool:
    given, taken = giver.inputs[taker_seat], taker.outputs[giver_seat]
    return _layout([given]) == _layout([taken])


def _all_reduce(calls: Sequence[Call], _seat: int) -> Tensors:
    return [
        reduced(torch.stack(list(parts)), calls[0].reduce_op)
        for parts in zip(*(call.inputs for call in calls), strict=True)
    ]


def _reduce(calls: Sequence[Call], seat: int) -> Tensors:
    return _all_reduce(calls, seat) if seat == calls[seat].root else []


def _broadcast(calls: Sequence[Call], seat: int) -> Tensors:
    return _of_root(calls, seat).inputs


def _all_gather(calls: Sequence[Call], _seat: int) -> Tensors:
    return [part for call in calls for part in call.inputs]


def _all_gather_single(calls: Sequence[Call], _seat: int) -> Tensors:
    return [
        torch.cat([part.reshape(-1) for part in parts])
        for parts in zip(*(call.inputs for call in calls), strict=True)
    ]


def _gather(calls: Sequence[Call], seat: int) -> Tensors:
    return _all_gather(calls, seat) if seat == calls[seat].root else []


def _scatter(calls: Sequence[Call], seat: int) -> Tensors:
    return [_of_root(calls, seat).inputs[seat]]


def _reduce_scatter(calls: Sequence[Call], seat: int) -> Tensors:
    stacked = torch.stack([call.inputs[seat] for call in calls])
    return [reduced(stacked, calls[0].reduce_op)]


def _reduce_scatter_single(calls: Sequence[Call], seat: int) -> Tensors:
    return [
        reduced(
            torch.stack([part.reshape(len(calls), -1)[seat] for part in parts]),
            calls[0].reduce_op,
        )
        for parts in zip(*(call.inputs for call in calls), strict=True)
    ]


def _all_to_all(calls: Sequence[Call], seat: int) -> Tensors:
    return [call.inputs[seat] for call in calls]


def _receive(calls: Sequence[Call], _seat: int) -> Tensors:
    sender, _ = calls
    return sender.inputs


def _nothing(_calls: Sequence[Call], _seat: int) -> Tensors:
    return []


def _of_root(calls: Sequence[Call], seat: int) -> Call:
    root = calls[seat].root
    assert root is not None  # torch asks for one
    return calls[root]


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
    "all_to_all": _all_to_all,
    "all_to_all_single": _all_to_all,
    "send": _nothing,
    "recv": _receive,
    "barrier": _nothing,
}
