"""Accesses, lifetimes and collectives of a rank, as the trace tells them."""

import gc

import pytest
import torch
from torch.nn.attention.flex_attention import create_block_mask

from syncverify.errors import EnvironmentNotSupportedError


def test_accesses_are_exact_bytes_of_shared_storages(lines_of) -> None:
    def program(_: int) -> None:
        side = torch.cuda.Stream()
        matrix = torch.zeros(2, 4)
        with torch.cuda.stream(side):
            matrix[:, 1].add_(1)
            matrix[1].copy_(torch.ones(4))  # one stream alone uses the source
        torch.zeros(5).mul_(2)  # one stream alone uses this, too

    assert lines_of(program) == [
        "default: zeros reads [] writes [0:0-32]",
        "stream 1: add_ reads [0:4-24x2@16] writes [0:4-24x2@16]",
        "stream 1: copy_ reads [] writes [0:16-32]",
        "storage 0 of default freed",
    ]


def test_out_and_foreach_and_new_results_are_seen(lines_of) -> None:
    def program(_: int) -> None:
        side = torch.cuda.Stream()
        a, b = torch.ones(2), torch.empty(2)
        with torch.cuda.stream(side):
            torch.add(a, a, out=b)
            torch._foreach_mul_([a, b], 2.0)
            c = a + b
        c.sum()

    events = [line for line in lines_of(program) if "freed" not in line]
    assert events == [
        "default: ones reads [] writes [0:0-8]",
        "stream 1: add reads [0:0-8] writes [1:0-8]",
        "stream 1: _foreach_mul_ reads [0:0-8 1:0-8] writes [0:0-8 1:0-8]",
        "stream 1: add reads [0:0-8 1:0-8] writes [2:0-8]",
        "default: sum reads [2:0-8] writes []",
    ]


def test_cycles_are_not_collected_during_a_run(lines_of) -> None:
    def program(_: int) -> None:
        cycle = [torch.zeros(2)]
        cycle.append(cycle)
        with torch.cuda.stream(torch.cuda.Stream()):
            cycle[0].add_(1)
        del cycle
        [[] for _ in range(10_000)]  # allocations, which would start a collection

    assert not [line for line in lines_of(program) if "freed" in line]
    assert gc.isenabled()


def test_operators_of_which_flex_attention_is_made_are_seen(lines_of) -> None:
    def program(_: int) -> None:
        query, key = torch.zeros(1, 1, 2, 4), torch.zeros(1, 1, 3, 4)
        mask = create_block_mask(lambda b, h, q, k: q >= k, 1, 1, 2, 3, "cpu")
        with torch.cuda.stream(torch.cuda.Stream()):
            torch.ops.higher_order.flex_attention(
                query,
                key,
                key,
                lambda score, b, h, q, k: score,
                mask.as_tuple(),
                1.0,
                {},
            )

    assert "stream 1: matmul reads [0:0-32] writes []" in lines_of(program)


def test_another_operator_that_runs_functions_is_refused(lines_of) -> None:
    def program(_: int) -> None:
        torch.ops.higher_order.cond(
            torch.tensor(True), torch.neg, torch.abs, (torch.ones(2),)
        )

    with pytest.raises(EnvironmentNotSupportedError, match="the operator cond"):
        lines_of(program)
