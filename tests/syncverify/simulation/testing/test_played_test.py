"""What a test on simulated ranks raises for all of them."""

import unittest

import pytest
import torch
import torch.distributed as dist
from torch.distributed.device_mesh import DeviceMesh

from syncverify.simulation.simulation import ProgramIsWrongError
from syncverify.simulation.testing.played_test import TestOptions, play_test
from syncverify.simulation.testing.without_group import without_group

_OPTIONS = TestOptions()


def test_error_of_a_rank_counts_before_the_stall_of_others() -> None:
    def test(rank: int) -> None:
        if rank == 1:
            raise ValueError("the cause")
        dist.barrier()

    with pytest.raises(ValueError, match=r"^the cause$"):
        play_test(test, 2, _OPTIONS, name="tests:test")


def test_what_is_not_simulated_is_skipped() -> None:
    def test(_: int) -> None:
        torch.cuda.CUDAGraph()

    with pytest.raises(unittest.SkipTest, match=r"^not simulated: .*CUDA graphs"):
        play_test(test, 2, _OPTIONS, name="tests:test")


def test_error_of_another_legal_order_is_reported() -> None:
    def test(rank: int) -> None:
        side = torch.cuda.Stream()
        value = torch.ones(2, device="cuda") + rank
        with torch.cuda.stream(side):
            dist.all_reduce(value)
        torch.cuda.current_stream().wait_stream(side)
        assert value.tolist() == [3.0, 3.0]

    with pytest.raises(ProgramIsWrongError) as raised:
        play_test(test, 2, _OPTIONS, name="tests:test")
    assert "stream 1.wait_stream(default)" in str(raised.value)
    assert "In another legal order, rank" in str(raised.value)


def test_ranks_make_default_groups_again_and_again() -> None:
    backends: list[str] = []

    def test(rank: int) -> None:
        with without_group():
            assert not dist.is_initialized()
            for backend in ("nccl", "cuda:nccl,cpu:gloo"):
                dist.init_process_group(backend, init_method="file:///absent")
                backends.append(dist.get_backend())
                value = torch.ones(1, device="cuda")
                dist.all_reduce(value)
                assert value.item() == 2
                dist.destroy_process_group()
        assert not dist.is_initialized()

    play_test(test, 2, _OPTIONS, name="tests:test")
    assert {*backends} == {"nccl", "cuda:nccl,cpu:gloo"}


def test_mesh_makes_a_default_group() -> None:
    def test(rank: int) -> None:
        with without_group():
            assert DeviceMesh("cuda", [0, 1]).get_group().rank() == rank

    play_test(test, 2, _OPTIONS, name="tests:test")


def test_default_group_is_made_once() -> None:
    def test(rank: int) -> None:
        with without_group():
            dist.init_process_group("nccl")
            dist.init_process_group("nccl")

    with pytest.raises(ValueError, match="twice"):
        play_test(test, 2, _OPTIONS, name="tests:test")
