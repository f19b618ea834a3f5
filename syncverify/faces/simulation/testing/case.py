"""A base class of tests on simulated ranks, in the place of torch's own base classes."""

import functools
import unittest
from collections.abc import Callable, Mapping, Sequence
from itertools import product
from typing import Any, ClassVar

import torch
import torch.distributed as dist
from typing_extensions import override

from syncverify.faces.simulation.program import Device
from syncverify.faces.simulation.testing.played_test import (
    Judged,
    TestOptions,
    play_test,
    pytest_id,
)

_NO_RANK = -1


class SimTestCase(unittest.TestCase):
    """Runs each test, with `setUp` and `tearDown`, once on each rank of a simulated machine.

    It offers what the base classes of torch's own distributed tests offer, so a class that
    derives from `MultiThreadedTestCase`, `MultiProcessTestCase`, `DTensorTestBase` or
    `FSDPTestMultiThread` may derive from it instead. The default process group exists when
    `setUp` begins.
    """

    world_size: Any = 4  # a class may have a property in its place
    device: ClassVar[Device] = "cuda"  # that torch names to the ranks
    # Orders of the ranks to play, as for `syncverify.simulate`.
    schedules: ClassVar[str] = "default"
    judged: ClassVar[Judged] = "all"  # `values`: the order of streams does not count
    rank: int = _NO_RANK  # -1 outside of the ranks

    def __init__(self, methodName: str = "runTest") -> None:  # noqa: N803  # unittest's
        super().__init__(methodName)
        self._name = methodName

    @override
    def run(
        self, result: unittest.TestResult | None = None
    ) -> unittest.TestResult | None:
        """Run the test: on the ranks, or, on a rank, the test itself."""
        # pytest puts the method of the class into the instance before it runs the test.
        method = getattr(type(self), self._name, None)
        if method is not None:
            self.__dict__[self._name] = _on_ranks(self, method)
            self.__dict__["setUp"] = self.__dict__["tearDown"] = _nothing
        return super().run(result)

    def run_on_rank(self, rank: int) -> None:
        """Run the test on a rank, with its fixtures."""
        self.rank = rank
        try:
            self.setUp()
            self.perThreadSetUp()
            try:
                getattr(self, self._name)()
            finally:
                self.perThreadTearDown()
                self.tearDown()
        finally:
            self.doCleanups()

    @property
    def device_type(self) -> str:
        """Device of tensors and meshes."""
        return self.device

    @property
    def backend(self) -> str:
        """Backend of the default process group."""
        return "nccl" if self.device == "cuda" else "gloo"

    @property
    def pg(self) -> dist.ProcessGroup:
        """The default process group."""
        group = dist.group.WORLD
        assert group is not None
        return group

    process_group = pg

    @property
    def is_master(self) -> bool:
        """Tell whether this is rank 0."""
        return self.rank == 0

    def perThreadSetUp(self) -> None:  # noqa: N802  # torch's name
        """Prepare a test on a rank, after `setUp`."""

    def perThreadTearDown(self) -> None:  # noqa: N802
        """Clean up after a test on a rank, before `tearDown`."""

    def _spawn_threads(self) -> None:
        """Do nothing: the ranks are there. `setUp` of such a class calls it."""

    _spawn_processes = _spawn_threads

    def init_pg(self, *_eager_init: Any, **_options: Any) -> None:
        """Make the default group, unless it is there; torch's `with_comms` calls it."""
        if not dist.is_initialized():
            dist.init_process_group(self.backend)

    def destroy_pg(self, *_device: Any) -> None:
        """Wait for all ranks; torch's `with_comms` calls it. The machine destroys the group."""
        dist.barrier()

    def build_device_mesh(self) -> dist.DeviceMesh:
        """Return a mesh of all ranks."""
        return dist.init_device_mesh(self.device_type, (self.world_size,))

    def run_subtests(
        self,
        subtest_config: Mapping[str, Sequence[Any]],
        test_fn: Callable[..., object],
        *test_args: Any,
        **test_kwargs: Any,
    ) -> None:
        """Run a test with each combination of the values of its arguments."""
        for values in product(*subtest_config.values()):
            given = dict(zip(subtest_config, values, strict=True))
            with self.subTest(**given):
                test_fn(*test_args, **test_kwargs, **given)
            dist.barrier()


def _nothing() -> None:
    """Stand in for the fixtures outside of the ranks."""


def _on_ranks(
    case: SimTestCase, method: Callable[[SimTestCase], object]
) -> Callable[[], None]:
    """Return a method that runs the test of a case on its ranks."""
    kind = type(case)
    options = TestOptions(kind.device, kind.schedules, kind.judged)
    name = method.__name__

    @functools.wraps(method)  # with the marks of skips and expected failures
    def run() -> None:
        __tracebackhide__ = True

        def on_rank(rank: int) -> None:
            torch.manual_seed(0)
            kind(name).run_on_rank(rank)

        play_test(on_rank, case.world_size, options, name=pytest_id(kind, name))

    return run
