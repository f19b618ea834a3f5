"""Reductions that differ between backends: ours are NCCL's."""

from collections.abc import Callable
from typing import Any

import pytest
import torch
import torch.distributed as dist

from syncverify.sim.network.reductions import (
    reduced,
    refused,
)

OnRanks = Callable[[int, Callable[[int], Any]], list[Any]]


def test_average_of_whole_numbers_drops_the_remainder_exactly() -> None:
    """A quotient of floats would lose the last bits of the large one."""
    large = 2**53 + 1
    stacked = torch.tensor([[large, 5, -5], [large, 0, 0]])
    assert reduced(stacked, "AVG").tolist() == [large, 2, -2]


def test_sums_keep_their_dtype_and_overflow_as_it_does() -> None:
    stacked = torch.tensor([[100], [100]], dtype=torch.int8)
    assert reduced(stacked, "SUM").dtype == torch.int8
    assert reduced(stacked, "AVG").tolist() == [-28]


def test_scaled_sum_multiplies_each_rank_by_its_own_factor(on_ranks: OnRanks) -> None:
    def program(rank: int) -> list[float]:
        tensor = torch.tensor([3.0, 5.0])
        dist.all_reduce(tensor, dist._make_nccl_premul_sum(2.0 + rank))
        return tensor.tolist()

    assert on_ranks(2, program) == [[15.0, 25.0]] * 2


@pytest.mark.filterwarnings("ignore:.*is deprecated:FutureWarning")
def test_factor_may_be_a_tensor_and_leaves_the_input_alone(on_ranks: OnRanks) -> None:
    def program(rank: int) -> tuple[list[float], list[float]]:
        given, output = torch.tensor([3.0, 5.0]), torch.zeros(1)
        op = dist._make_nccl_premul_sum(torch.tensor([0.5]))
        dist.reduce_scatter_tensor(output, given, op)
        return given.tolist(), output.tolist()

    assert on_ranks(2, program) == [([3.0, 5.0], [3.0]), ([3.0, 5.0], [5.0])]


def test_what_no_library_has_is_refused() -> None:
    assert refused("AVG", torch.bool) == "AVG of bool"
    assert refused("PREMUL_SUM", torch.int64) == "PREMUL_SUM of int64"
    assert refused("UNUSED", torch.float32) == "UNUSED of float32"
    for allowed in (
        ("AVG", torch.int64), ("SUM", torch.bool), ("PREMUL_SUM", torch.bfloat16), ("", torch.bool),
    ):  # fmt: skip
        assert refused(*allowed) is None
