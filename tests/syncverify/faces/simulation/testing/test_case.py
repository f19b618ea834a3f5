"""A base class whose tests run once on each rank, and what a test raises for all of them."""

import unittest
from collections.abc import Iterator

import pytest
import torch
import torch.distributed as dist

from syncverify import SimTestCase
from syncverify.faces.simulation.testing.case import (
    TestOptions,
    play_test,
    without_group,
)

_CALLS: list[object] = []


@pytest.fixture(autouse=True)
def _no_calls() -> Iterator[None]:
    _CALLS.clear()
    yield
    _CALLS.clear()


class _Two(SimTestCase):
    world_size = 2

    def sum_late(self) -> torch.Tensor:
        summed = torch.full((2,), float(self.rank), device=self.device_type)
        work = dist.all_reduce(summed, async_op=True)
        result = summed + 1
        work.wait()
        return result


def _run(test: type[unittest.TestCase], name: str) -> unittest.TestResult:
    result = unittest.TestResult()
    test(name).run(result)
    return result


def _message(result: unittest.TestResult) -> str:
    ((_, message),) = result.failures
    return message


def test_fixtures_run_on_each_rank() -> None:
    class Test(_Two):
        def setUp(self) -> None:
            self.addCleanup(_CALLS.append, "cleaned")
            _CALLS.append((self.rank, self.pg.size(), dist.get_backend()))

        def test_sum(self) -> None:
            summed = torch.full((2,), self.rank + 1.0, device="cuda")
            dist.all_reduce(summed, group=self.process_group)
            _CALLS.append(summed.tolist())

        def tearDown(self) -> None:
            _CALLS.append("tear down")

    assert _run(Test, "test_sum").wasSuccessful()
    assert {*map(str, _CALLS)} == {
        "(0, 2, 'nccl')", "(1, 2, 'nccl')", "[3.0, 3.0]", "tear down", "cleaned",
    }  # fmt: skip
    assert len(_CALLS) == 8


def test_race_fails_a_test_whose_assertions_hold() -> None:
    class Test(_Two):
        def test_late(self) -> None:
            assert self.sum_late().shape == (2,)

    message = _message(_run(Test, "test_late"))
    assert "streams_order_shared_memory (race)" in message
    assert "insert `work.wait()` of the all_reduce" in message
    assert "::test_late (2 ranks, simulated cuda" in message


def test_race_counts_for_nothing_where_values_are_judged() -> None:
    class Test(_Two):
        judged = "values"

        def test_late(self) -> None:
            self.sum_late()

    assert _run(Test, "test_late").wasSuccessful()


def test_deadlock_fails_a_test_in_any_case() -> None:
    class Test(_Two):
        judged = "values"

        def test_barrier(self) -> None:
            if self.rank == 0:
                dist.barrier()

    assert "every_wait_completes (deadlock)" in _message(_run(Test, "test_barrier"))


def test_error_that_comes_of_a_race_is_shown_with_the_race() -> None:
    class Test(_Two):
        def test_late(self) -> None:
            # Rank 0 may have 1.0, since nothing orders the addition.
            assert self.sum_late().tolist() == [2.0, 2.0]

    message = _message(_run(Test, "test_late"))
    assert "AssertionError" in message
    assert "streams_order_shared_memory (race)" in message


def test_skips_and_expected_failures_keep_their_meaning() -> None:
    class Test(_Two):
        @unittest.skip("never")
        def test_never(self) -> None: ...

        def test_some_rank(self) -> None:
            if self.rank == 1:
                self.skipTest("not on this rank")

        @unittest.expectedFailure
        def test_wrong(self) -> None:
            assert self.rank == 0

    assert [reason for _, reason in _run(Test, "test_never").skipped] == ["never"]
    assert [reason for _, reason in _run(Test, "test_some_rank").skipped] == [
        "not on this rank"
    ]
    result = _run(Test, "test_wrong")
    assert len(result.expectedFailures) == 1
    assert not result.failures


def test_class_offers_what_torchs_bases_offer() -> None:
    class Test(_Two):
        device = "cpu"

        def setUp(self) -> None:
            super().setUp()
            self._spawn_threads()

        def perThreadSetUp(self) -> None:  # noqa: N802  # torch's name
            _CALLS.append("on a thread")

        def test_bases(self) -> None:
            self.init_pg(False)
            assert (self.device_type, self.backend, dist.get_backend()) == (
                "cpu",
                "gloo",
                "gloo",
            )
            assert self.build_device_mesh().size() == 2
            assert self.is_master == (self.rank == 0)
            self.run_subtests({"number": [1, 2], "name": ["a"]}, self.check)
            self.destroy_pg()

        def check(self, number: int, name: str) -> None:
            _CALLS.append((number, name))

    assert _run(Test, "test_bases").wasSuccessful()
    assert sorted(map(str, _CALLS)) == [
        "(1, 'a')", "(1, 'a')", "(2, 'a')", "(2, 'a')", "on a thread", "on a thread",
    ]  # fmt: skip


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
