"""The agreement of calls that meet in a collective: operations, arguments and layouts."""

from __future__ import annotations

from collections.abc import Sequence

import torch

from syncverify.sim.network.collectives import (
    PART_FOR_EACH_RANK,
    CollectiveCall,
    Tensors,
)

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
