"""torch's own base classes of tests on simulated ranks, in processes of pytest of their own.

`torch.testing` freezes flags and seeds generators when it is imported.
"""

import pytest

pytest_plugins = ["pytester"]
pytestmark = pytest.mark.long

_TESTS = """
import unittest

import pytest
import torch
import torch.distributed as dist
from torch.distributed.tensor import Shard, distribute_tensor, init_device_mesh
from torch.testing._internal.common_distributed import (
    MultiProcContinuousTest, MultiProcessTestCase, MultiThreadedTestCase, skip_if_lt_x_gpu,
    spawn_threads_and_init_comms,
)
from torch.testing._internal.common_fsdp import FSDPTest, FSDPTestMultiThread
from torch.testing._internal.common_utils import (
    instantiate_parametrized_tests, parametrize,
)
from torch.testing._internal.distributed._tensor.common_dtensor import (
    DTensorTestBase, with_comms,
)

GPUS = torch.cuda.device_count()

def summed(rank):
    value = torch.full((2,), rank + 1.0)
    dist.all_reduce(value)
    return value

@instantiate_parametrized_tests
class TestProcesses(MultiProcessTestCase):
    world_size = 2

    def setUp(self):
        super().setUp()
        self._spawn_processes()

    def init(self):
        where = {"init_method": f"file://{self.file_name}", "rank": self.rank, "world_size": 2}
        dist.init_process_group("gloo", **where)

    @parametrize("number", [3, 4])
    def test_sum(self, number):
        self.init()
        self.assertEqual(summed(self.rank), torch.full((2,), float(number)))

    @unittest.expectedFailure
    def test_expected(self):
        self.assertEqual(self.rank, 0)

    @skip_if_lt_x_gpu(2)
    def test_two_gpus(self):
        assert GPUS == torch.cuda.device_count() == 3
        assert torch.ones(1, device="cuda").is_cuda

    @skip_if_lt_x_gpu(4)
    def test_four_gpus(self):
        raise AssertionError

    def test_late(self):
        self.init()
        value = torch.ones(2)
        work = dist.all_reduce(value, async_op=True)
        value + 1
        work.wait()

class TestThreads(MultiThreadedTestCase):
    world_size = 2

    def setUp(self):
        super().setUp()
        self._spawn_threads()

    def perThreadSetUp(self):
        self.value = self.rank

    def test_sum(self):
        self.assertEqual(self.value, dist.get_rank())
        assert not GPUS or torch.cuda.current_device() == 0

class TestLasting(MultiProcContinuousTest):
    world_size = 2

    @classmethod
    def backend_str(cls):
        return "gloo"

    def test_sum(self):
        self.assertEqual(summed(self.rank)[0], 3)
        assert type(self).pg.rank() == self.rank
        assert not GPUS or torch.cuda.current_device() == self.rank

class TestPlain(unittest.TestCase):
    @spawn_threads_and_init_comms(world_size=3)
    def test_sum(self):
        assert summed(dist.get_rank())[0] == 6

    def test_on_a_gpu(self):
        if torch.cuda.is_available():
            torch.ones(1, device="cuda")

class TestTensors(DTensorTestBase):
    @with_comms
    def test_full(self):
        mesh = init_device_mesh(self.device_type, (self.world_size,))
        whole = torch.arange(8.0, device=self.device_type)
        self.assertEqual(distribute_tensor(whole, mesh, [Shard(0)]).full_tensor(), whole)

class TestSharding(FSDPTest):
    world_size = 2

    def test_group(self):
        self.run_subtests({"number": [1, 2]}, self.check)

    def check(self, number):
        assert self.process_group.size() == 2

class TestShardingThreads(FSDPTestMultiThread):
    world_size = 2

    def test_group(self):
        assert dist.get_world_size() == 2
"""


def test_bases_of_torch_run_on_simulated_ranks(pytester: pytest.Pytester) -> None:
    pytester.makepyfile(_TESTS)
    shown = pytester.runpytest_subprocess("--simulate-ranks", "-rfsx", "-W", "ignore")
    shown.assert_outcomes(passed=7, failed=2, skipped=3, xfailed=1)
    shown.stdout.fnmatch_lines_random(
        [
            "VIOLATION: streams_order_shared_memory (race)",
            "  remedy: *insert `work.wait()` of the all_reduce launched at *",
            "  replay: *.py::TestProcesses::test_late --simulate-ranks --simulate-device=cpu",
            "SKIPPED * Need at least 2 CUDA devices",
            "SKIPPED * Need at least 4 CUDA devices",
            "E * AssertionError: Tensor-likes are not close!",
        ]
    )
    assert "MultiProcessTestCase" not in shown.stdout.str()


def test_virtual_gpus_count_where_tests_ask(pytester: pytest.Pytester) -> None:
    pytester.makepyfile(_TESTS)
    options = (
        "--simulate-ranks",
        "--simulate-device=cuda",
        "--simulate-gpus=3",
        "-W",
        "ignore",
    )
    shown = pytester.runpytest_subprocess(
        *options, "-rs", "-k", "not late and not number_4"
    )
    shown.assert_outcomes(passed=8, skipped=2, xfailed=1, deselected=2)
    shown.stdout.fnmatch_lines(
        "SKIPPED * not simulated: memory of a GPU in a test without ranks"
    )
