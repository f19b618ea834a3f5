"""Tests on simulated ranks: one test on all of them, and a base class of such tests."""

import functools
import inspect
import unittest
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from itertools import product
from typing import Any, ClassVar, Literal

import torch
import torch.distributed as dist
from typing_extensions import override

from syncverify.errors import RunEndedError, SyncverifyError
from syncverify.faces.simulation.program import Device
from syncverify.faces.simulation.simulate import simulate
from syncverify.faces.simulation.simulation import ProgramIsWrongError
from syncverify.judge.violation import is_exception
from syncverify.plain_text import kind_of, message_of
from syncverify.sim.network.threaded_world import has_groups
from syncverify.trace.source_lines import shown_path

_NO_RANK = -1
Judged = Literal["all", "values"]


@dataclass(frozen=True, slots=True)
class TestOptions:
    """How tests are played."""

    __test__ = False  # no test, whatever pytest thinks of the name

    device: Device = "cuda"  # that torch names to the test
    schedules: str = "default"  # orders of the ranks to play, as for `simulate`
    # With `values` a test fails as it would on real ranks, by what it asserts, a deadlock or a
    # mismatch, and not by the order of its streams.
    judged: Judged = "all"


def play_test(
    test: Callable[[int], object], num_ranks: int, options: TestOptions, *, name: str
) -> None:
    """Run a test on each rank of a simulated machine, and raise the error of the test.

    Raises:
        BaseException: That of the first rank that raised, with its own traceback.
        ProgramIsWrongError: The test holds on each rank, and is wrong all the same.
        SkipTest: The test asks for what the machine does not simulate.
    """
    __tracebackhide__ = True
    raised = list[tuple[int, BaseException]]()  # with the rank, in order

    def on_rank(rank: int) -> None:
        try:
            test(rank)
        except (RunEndedError, SyncverifyError):
            raise
        except BaseException as error:
            raised.append((rank, error))
            raise

    simulation = simulate(
        on_rank, num_ranks, device=options.device, schedules=options.schedules
    )
    simulation = replace(simulation, program=name)  # as pytest takes it
    if simulation.refused:
        raise unittest.SkipTest(f"not simulated: {simulation.refused}")
    # Violations that are no exceptions of the test itself.
    others = [e for e in simulation.violations if not is_exception(e.violation.cause)]
    if len(others) < len(simulation.violations):
        _, error = raised[0]
        if others:
            error.add_note(str(simulation))
        raise error
    if options.judged == "values":
        others = [each for each in others if each.violation.evidence.unordered is None]
    if others:
        text = str(simulation)
        for rank, error in raised[:1]:  # in another legal order of its streams
            first_line, *_ = message_of(error).split("\n")
            text += f"\nIn another legal order, rank {rank} raises {kind_of(error)}: {first_line}"
        raise ProgramIsWrongError(text)


def pytest_id(kind: type, name: str) -> str:
    """Return the name of a test of a class, as pytest takes it."""
    file = shown_path(inspect.getsourcefile(kind) or kind.__module__)
    return f"{file}::{kind.__qualname__}::{name}"


@contextmanager
def without_group() -> Iterator[None]:
    """Let a rank begin without a default group, and leave it without one."""
    dist.destroy_process_group()
    try:
        yield
    finally:
        if has_groups():
            dist.destroy_process_group()


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
            # The fixtures are those of the ranks.
            self.__dict__["setUp"] = self.__dict__["tearDown"] = lambda: None
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
