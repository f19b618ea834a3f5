"""Calls that fit together, and the data that each rank receives: without ranks that run."""

import pytest
import torch

from syncverify.sim.network.agreement import agree
from syncverify.sim.network.collectives import CollectiveCall


def tensors(*sizes: int, dtype: torch.dtype = torch.float32) -> list[torch.Tensor]:
    return [torch.arange(size).to(dtype) for size in sizes]


def call(
    operation: str,
    inputs: list[torch.Tensor],
    outputs: list[torch.Tensor],
    root: int | None = None,
    reduce_op: str = "",
) -> CollectiveCall:
    return CollectiveCall(operation, reduce_op, inputs, outputs, root)


def fit(one: CollectiveCall, other: CollectiveCall) -> bool:
    """Tell whether two ranks of three agree, whichever asks."""
    calls = [None, one, other]
    assert agree(calls, 1, 2) == agree(calls, 2, 1)
    return agree(calls, 1, 2)


@pytest.mark.parametrize(
    "operation",
    [
        "all_reduce",
        "reduce",
        "broadcast",
        "all_gather_single",
        "gather",
        "reduce_scatter",
        "reduce_scatter_single",
    ],
)
def test_ranks_give_the_same_where_values_are_combined_or_copied(
    operation: str,
) -> None:
    one = call(operation, tensors(4), [])
    assert fit(one, call(operation, tensors(4), []))
    assert not fit(one, call(operation, tensors(6), []))
    assert not fit(one, call(operation, tensors(4, dtype=torch.float64), []))
    assert not fit(one, call(operation, tensors(4, 4), []))


@pytest.mark.parametrize(
    "operation", ["all_gather", "all_gather_single", "reduce_scatter_single", "scatter"]
)
def test_ranks_take_the_same(operation: str) -> None:
    one = call(operation, [], tensors(4))
    assert fit(one, call(operation, [], tensors(4)))
    assert not fit(one, call(operation, [], tensors(6)))


@pytest.mark.parametrize(
    ("operation", "part"),
    [
        ("all_gather", "inputs"),
        ("scatter", "inputs"),
        ("gather", "outputs"),
        ("reduce", "outputs"),
        ("reduce_scatter", "outputs"),
    ],
)
def test_what_a_rank_gives_or_takes_alone_may_differ(operation: str, part: str) -> None:
    first, second = tensors(4), tensors(6)
    if part == "inputs":
        assert fit(call(operation, first, []), call(operation, second, []))
    else:
        assert fit(call(operation, [], first), call(operation, [], second))


def test_operation_reduction_and_root_are_the_same() -> None:
    one = call("reduce", tensors(4), [], 0, "SUM")
    assert fit(one, call("reduce", tensors(4), [], 0, "SUM"))
    assert not fit(one, call("reduce", tensors(4), [], 1, "SUM"))
    assert not fit(one, call("reduce", tensors(4), [], 0, "MAX"))
    assert not fit(one, call("broadcast", tensors(4), [], 0, "SUM"))


def test_a_message_is_what_its_receiver_expects() -> None:
    sent = call("send", tensors(4), [])
    assert fit(sent, call("recv", [], tensors(4)))
    assert not fit(sent, call("recv", [], tensors(6)))
    assert not fit(sent, call("recv", [], tensors(4, dtype=torch.int64)))
    assert not fit(sent, call("all_reduce", [], tensors(4)))


@pytest.mark.parametrize("operation", ["all_to_all", "all_to_all_single"])
def test_each_part_is_what_the_other_rank_expects_of_this_one(operation: str) -> None:
    """Ranks 1 and 2 of three; their exchange with rank 0 is no concern."""
    one = call(operation, tensors(9, 1, 2), tensors(8, 1, 3))
    assert fit(one, call(operation, tensors(7, 3, 1), tensors(6, 2, 1)))
    assert not fit(one, call(operation, tensors(7, 4, 1), tensors(6, 2, 1)))
    assert not fit(one, call(operation, tensors(7, 3, 1), tensors(6, 3, 1)))


def test_outputs_are_written_at_the_ranks_that_receive() -> None:
    outputs = tensors(2)
    for operation in ("reduce", "gather"):
        assert call(operation, [], outputs, 1).written_by(1) is outputs
        assert call(operation, [], outputs, 1).written_by(0) == []
    assert call("broadcast", [], outputs, 1).written_by(0) is outputs
    assert call("broadcast", [], outputs, 1).written_by(1) == []
    assert call("all_gather", [], outputs).written_by(0) is outputs
