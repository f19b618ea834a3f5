"""The marker `ranks`, in runs of pytest inside this process."""

import pytest

pytest_plugins = ["pytester"]

_TESTS = """
import pytest
import torch
import torch.distributed as dist

MADE = []

@pytest.fixture
def made():
    MADE.append("made")
    return MADE

@pytest.mark.ranks(2)
@pytest.mark.parametrize("number", [3, 4])
def test_sum(rank, number, made, tmp_path):
    value = torch.full((2,), rank + 1.0, device="cuda")
    dist.all_reduce(value)
    assert len(made) == number - 2  # made once for all ranks of a test
    assert value.tolist() == [number, number]

@pytest.mark.ranks(2)
class TestMine:
    def test_race(self):
        value = torch.ones(2, device="cuda")
        work = dist.all_reduce(value, async_op=True)
        value + 1
        work.wait()

    @pytest.mark.xfail(strict=True)
    def test_expected(self, rank):
        assert rank == 0

@pytest.mark.ranks(2, device="cpu", judged="values")
def test_cpu(rank):
    assert dist.get_backend() == "gloo"
    work = dist.all_reduce(torch.ones(1), async_op=True)

@pytest.mark.ranks(2, schedules="all")
def test_schedules(rank):
    store = dist.distributed_c10d._get_default_store()
    if rank == 0:
        store.set("ready", "yes")
    else:
        assert store.check(["ready"])

@pytest.mark.ranks(2)
def test_skipped(rank):
    pytest.skip("not here")

def test_plain(rank):
    assert rank == -1
"""


def test_marked_test_runs_on_each_rank(pytester: pytest.Pytester) -> None:
    pytester.makepyfile(_TESTS)
    shown = pytester.runpytest_inprocess("-rfs")
    shown.assert_outcomes(passed=3, failed=3, skipped=1, xfailed=1)
    shown.stdout.fnmatch_lines_random(
        [
            "*E       assert [[]3.0, 3.0] == [[]4, 4]*",
            "VIOLATION: streams_order_shared_memory (race)",
            "  replay: *pytest test_*.py::TestMine::test_race",
            "1 VIOLATION: *test_race (2 ranks, simulated cuda, *",
            "*assert store.check*",
            "SKIPPED *not here",
        ]
    )
    assert "playing.py" not in shown.stdout.str()


def test_marker_says_how_many_ranks(pytester: pytest.Pytester) -> None:
    pytester.makepyfile("import pytest\n@pytest.mark.ranks\ndef test_none(): ...")
    shown = pytester.runpytest_inprocess()
    shown.assert_outcomes(failed=1)
    shown.stdout.fnmatch_lines(
        ["*expected the number of ranks: @pytest.mark.ranks(4)*"]
    )
