"""One test on simulated ranks: one error or report for all of its ranks."""

import inspect
import unittest
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import Literal

import torch.distributed as dist

from syncverify.errors import RunEndedError, SyncverifyError
from syncverify.faces.simulation.program import Device
from syncverify.faces.simulation.simulate import simulate
from syncverify.faces.simulation.simulation import ProgramIsWrongError
from syncverify.judge.cause import is_exception
from syncverify.plain_text import kind_of, message_of
from syncverify.sim.network.threaded_world import has_groups
from syncverify.trace.source_lines import shown_path

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
