"""torch's own base classes of distributed tests, on simulated ranks.

The only module that touches `torch.testing._internal.common_distributed`. We rely on these
facts, and a test says so:

- The constructors of `MultiProcessTestCase` and `MultiThreadedTestCase` put what
  `join_or_run(function)` returns into the place of the test, and that of
  `MultiProcContinuousTest` what `_worker_run_main_wait(function)` returns.
- Their ranks start in `_spawn_processes`, or `_spawn_threads`, which do nothing else.
- A process calls `_run(rank, name, file, pipe)`, which ends in `run_test(name, pipe)`; a thread
  calls `_run(name, rank, world_size)`, which ends in `run_test_with_threaded_pg`.
- `spawn_threads_and_init_comms` decorates a test that runs on threads in any class.
- A rank that skips itself exits with a code of `TEST_SKIPS`.
"""

import functools
import tempfile
import types
import unittest
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, ExitStack, contextmanager, nullcontext
from typing import Any, Final
from unittest.mock import patch

import torch.distributed as dist
from torch.testing._internal import common_distributed as torch_cases
from torch.testing._internal import common_utils

from syncverify.faces.simulation.testing.case import (
    TestOptions,
    play_test,
    pytest_id,
    without_group,
)
from syncverify.sim.process_wide.rank_variables import one_device, one_machine

_NO_RANK: Final = -1
_NUM_THREADS: Final = torch_cases.DEFAULT_WORLD_SIZE
_PROCESSES: Final = torch_cases.MultiProcessTestCase
_THREADS: Final = torch_cases.MultiThreadedTestCase
_LASTING: Final = torch_cases.MultiProcContinuousTest


@contextmanager
def simulated_torch_cases(options: TestOptions, num_gpus: int) -> Iterator[None]:
    """Let torch's base classes run their ranks on a simulated machine within a block."""
    on_threads = _in_place(_run_as_thread, options, one_device)
    on_lasting = _in_place(_run_as_lasting_process, options)
    changes: list[tuple[Any, str, Any]] = [
        (_PROCESSES, "join_or_run", _in_place(_run_as_process, options)),
        (_PROCESSES, "_spawn_processes", _start_none),
        (_PROCESSES, "run_test", _test_of_process),
        (_THREADS, "join_or_run", on_threads),
        (_THREADS, "_spawn_threads", _start_none),
        (_THREADS, "run_test_with_threaded_pg", _test_of_thread),
        (_LASTING, "_worker_run_main_wait", on_lasting),
        (_LASTING, "_spawn_processes", classmethod(_start_no_lasting)),
        (torch_cases, "spawn_threads_and_init_comms", _on_threads_of_a_test(options)),
    ]
    with ExitStack() as stack:
        stack.enter_context(one_machine(num_gpus))
        for owner, name, value in changes:
            stack.enter_context(patch.object(owner, name, value))
        yield


def _in_place(
    run: Callable[[Any, str, int], None],
    options: TestOptions,
    place: Callable[[], AbstractContextManager[object]] = nullcontext,
) -> Callable[[Any, Callable[[], Any]], Any]:
    """Return a function in the place of `join_or_run`.

    The method that it makes plays the test on ranks, in a block that `place` makes; on a rank it
    runs the test itself. `run` runs the test of a case, by name, on a rank.
    """

    def join_or_run(case: Any, test: Callable[[], Any]) -> Any:
        @functools.wraps(test)
        def method(self: Any) -> None:
            __tracebackhide__ = True
            if self.rank != _NO_RANK:
                test()
                return
            name = self.id().rpartition(".")[2]
            on_rank = functools.partial(run, self, name)
            with place():
                _play(on_rank, type(self), name, int(self.world_size), options)

        return types.MethodType(method, case)

    return join_or_run


def _play(
    test: Callable[[int], None],
    kind: type,
    name: str,
    num_ranks: int,
    options: TestOptions,
) -> None:
    __tracebackhide__ = True

    def on_rank(rank: int) -> None:
        with without_group(), _skips():
            test(rank)

    how = f"--simulate-ranks --simulate-device={options.device}"
    play_test(on_rank, num_ranks, options, name=f"{pytest_id(kind, name)} {how}")


@contextmanager
def _skips() -> Iterator[None]:
    """Turn an exit by which a rank skips its test into a skip."""
    try:
        yield
    except SystemExit as error:
        for skip in torch_cases.TEST_SKIPS.values():
            if error.code == skip.exit_code:
                raise unittest.SkipTest(skip.message) from None
        raise


def _start_none(_case: Any) -> None:
    """Start no processes, and no threads: a test starts its own ranks."""


def _start_no_lasting(kind: Any, _world_size: int) -> None:
    kind.processes, kind.task_queues, kind.completion_queues = [], [], []
    kind.rdvz_file = ""


def _run_as_process(case: Any, name: str, rank: int) -> None:
    if case.special_return_code_checks or case.skip_return_code_checks:
        raise unittest.SkipTest("not simulated: a process that ends with an exit code")
    fake = getattr(case, "fake_pg", False)
    type(case)._run(rank, name, case.file_name, None, fake_pg=fake)  # noqa: SLF001


def _test_of_process(case: Any, name: str, _pipe: Any) -> None:
    common_utils.set_rng_seed()
    getattr(case, name)()


def _run_as_thread(case: Any, name: str, rank: int) -> None:
    type(case)._run(name, rank, int(case.world_size))  # noqa: SLF001


def _test_of_thread(case: Any, name: str, _rank: int, _world_size: int) -> None:
    dist.init_process_group("threaded")
    case.perThreadSetUp()
    try:
        getattr(case, name)()
    finally:
        case.perThreadTearDown()


def _on_threads_of_a_test(options: TestOptions) -> Any:
    """Return the decorator of tests that run on threads in a class of any kind."""

    def spawn_threads_and_init_comms(
        func: Any = None, timeout: Any = None, world_size: int = _NUM_THREADS
    ) -> Any:
        if func is None:
            own = spawn_threads_and_init_comms
            return functools.partial(own, world_size=world_size)

        @functools.wraps(func)
        def test(case: Any, *args: Any, **options_of_test: Any) -> None:
            __tracebackhide__ = True

            def on_rank(_: int) -> None:
                dist.init_process_group("threaded")
                func(case, *args, **options_of_test)

            with one_device():
                _play(on_rank, type(case), func.__name__, world_size, options)

        return test

    return spawn_threads_and_init_comms


def _run_as_lasting_process(case: Any, name: str, rank: int) -> None:
    """Run the test as the process would that runs all tests of the class, one after another.

    Such a process keeps its rank and its group in attributes of the class, so each rank has a
    class of its own.
    """
    kind = type(case)
    attributes = {"rank": rank, "__module__": kind.__module__}
    own: Any = type(kind.__name__, (kind,), attributes)
    with tempfile.NamedTemporaryFile() as file:
        own._init_pg(rank, int(case.world_size), file.name)  # noqa: SLF001
    own._run_test_given_id(name)  # noqa: SLF001
