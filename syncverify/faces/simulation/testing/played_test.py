"""One test on simulated ranks: one error or report for all of its ranks."""

from __future__ import annotations

import inspect
import unittest
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from typing import Literal

from syncverify.errors import RunEndedError, SyncverifyError
from syncverify.faces.simulation.program import Device
from syncverify.faces.simulation.simulate import simulate
from syncverify.faces.simulation.simulation import FoundInProgram, ProgramIsWrongError
from syncverify.judge.cause import is_exception
from syncverify.plain_text import kind_of, message_of
from syncverify.trace.source_lines import shown_path

Judged = Literal["all", "values"]


@dataclass(frozen=True, slots=True)
class TestOptions:
    """How tests are played.

    Attributes:
        device: Device that torch names to the test.
        schedules: Orders of the ranks to play, as for `simulate`.
        judged: `all`, or `values`: a test fails as it would on real ranks, by what it
            asserts, a deadlock or a mismatch, and not by the order of its streams.
    """

    __test__ = False  # no test, whatever pytest thinks of the name

    device: Device = "cuda"
    schedules: str = "default"
    judged: Judged = "all"


class _Ranks:
    """A test as a program of ranks.

    Args:
        test: The test of a rank.

    Attributes:
        raised: Each rank that raised, with its error, in the order in which they raised.
    """

    def __init__(self, test: Callable[[int], object]) -> None:
        self._test = test
        self.raised: list[tuple[int, BaseException]] = []

    def __call__(self, rank: int) -> None:
        """Run the test on a rank; whatever it returns is no result."""
        try:
            self._test(rank)
        except (RunEndedError, SyncverifyError):
            raise
        except BaseException as error:
            self.raised.append((rank, error))
            raise


def play_test(
    test: Callable[[int], object], num_ranks: int, options: TestOptions, *, name: str
) -> None:
    """Run a test on each rank of a simulated machine, and raise the error of the test.

    Args:
        test: The test of a rank.
        num_ranks: Number of ranks.
        options: How tests are played.
        name: Name of the test in reports, as pytest takes it: `file.py::Class::test`.

    Raises:
        BaseException: That of the first rank that raised, with its own traceback.
        ProgramIsWrongError: The test holds on each rank, and is wrong all the same.
        SkipTest: The test asks for what the machine does not simulate.
    """
    __tracebackhide__ = True
    ranks = _Ranks(test)
    simulation = simulate(
        ranks, num_ranks, device=options.device, schedules=options.schedules
    )
    simulation = replace(simulation, program=name)
    if simulation.refused:
        raise unittest.SkipTest(f"not simulated: {simulation.refused}")
    others = [each for each in simulation.violations if not _is_raised(each)]
    if len(others) < len(simulation.violations):
        _, error = ranks.raised[0]
        if others:
            error.add_note(str(simulation))
        raise error
    if options.judged == "values":
        others = [each for each in others if each.violation.evidence.unordered is None]
    if others:
        raise ProgramIsWrongError("\n".join([str(simulation), *_harm(ranks)]))


def pytest_id(kind: type, name: str) -> str:
    """Return the name of a test of a class, as pytest takes it."""
    file = shown_path(inspect.getsourcefile(kind) or kind.__module__)
    return f"{file}::{kind.__qualname__}::{name}"


def _is_raised(found: FoundInProgram) -> bool:
    """Tell whether a violation is an exception of the test itself."""
    return is_exception(found.violation.cause)


def _harm(ranks: _Ranks) -> Iterator[str]:
    """Yield what the test itself raises in another legal order of its streams, if anything."""
    for rank, error in ranks.raised[:1]:
        error_text = f"{kind_of(error)}: {message_of(error).partition(chr(10))[0]}"
        yield f"In another legal order, rank {rank} raises {error_text}"
