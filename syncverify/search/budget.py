"""Limits on the runs of a judge, by time, number, slow runs and hangs; the search within them.

A time limit ends a search. Numbers of runs end shrinking: they do not depend on the speed of
the machine, so equal seeds give equal reports.

Note [After a hang]
    A hang is known after some seconds without progress. The user waits for the verdict
    meanwhile, and a subject that hangs once mostly hangs again. So the first hang ends the
    exploration, one more run may hang to make its scenario small, and no feature beyond the
    contract is played. The report lists in one line what was not tried.
"""

import contextlib
import time
from collections import Counter
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from typing import Final, TypeVar

from syncverify.trace.run import Fault

Found = TypeVar("Found")
Form = TypeVar("Form")
# A run that ends in a fault on a backend other than `sim`, or in a hang, may take seconds.
# Three of them are enough to report the fault.
_MAX_SLOW_RUNS = 3
# The first hang, and one more for a smaller scenario.
_MAX_HANGS = 2
AFTER_A_HANG: Final = "each hang takes seconds"
# Why a search left something out.
OUT_OF_TIME: Final = "the time limit came first"
# A subject that is made or bound in none of its first runs is not what a search is about.
_ALWAYS: Final = 5
AFTER_ERRORS: Final = (
    f"each of the first {_ALWAYS} runs ends in bind(), at the same line"
)
BACKENDS_OF_ONE_PROCESS: Final = ("sim", "fake")


def is_hang(cause: str, backend: str) -> bool:
    """Return whether a violation is a hang that takes seconds in each run.

    A rank that keeps its turn is one. Ranks that wait for each other are a hang on real
    processes; simulated ranks are known to wait at once. The cause of a fault is its kind.
    """
    waits = cause == "deadlock" and backend not in BACKENDS_OF_ONE_PROCESS
    return cause == "never_returns" or waits


def is_slow(fault: Fault | None, backend: str) -> bool:
    """Tell whether a run may have taken seconds: a fault anywhere but on `sim`, or a hang."""
    return fault is not None and (backend != "sim" or fault.kind == "never_returns")


class OutOfBudgetError(Exception):
    """The judge may make no more runs."""


@dataclass(slots=True)
class Budget:
    """Limits on the runs of a judge; None for no limit."""

    deadline: float | None = None
    runs_left: int | None = None
    # Slow runs with a violation (`is_slow`), since the last reset to 0.
    num_slow_runs: int = 0
    # Runs with a violation that is a hang; never reset.
    num_hangs: int = 0
    # Number of runs by the place at which `bind()` or the constructor raised, "" for those in
    # which neither did.
    binds: Counter[str] = field(default_factory=Counter)

    @property
    def stopped(self) -> str:
        """Say why a search plays no further scenario; "" if it does."""
        if self.num_hangs:
            return AFTER_A_HANG
        never_binds = len(self.binds) == 1 and "" not in self.binds
        return AFTER_ERRORS if never_binds and self.binds.total() >= _ALWAYS else ""

    @property
    def is_out_of_time(self) -> bool:
        """Tell whether the deadline is over."""
        return self.deadline is not None and time.monotonic() > self.deadline

    def take_run(self) -> None:
        """Take one run out of the budget; raise `OutOfBudgetError` at a limit."""
        if (
            self.runs_left == 0
            or self.num_slow_runs >= _MAX_SLOW_RUNS
            or self.num_hangs >= _MAX_HANGS
            or self.is_out_of_time
        ):
            raise OutOfBudgetError
        if self.runs_left is not None:
            self.runs_left -= 1

    def note(self, fault: Fault | None, backend: str, *, is_violated: bool) -> None:
        """Note the end of a run on a backend, and whether it violates a property."""
        self.binds[_place_in_bind(fault) if is_violated else ""] += 1
        if is_violated and fault is not None:
            self.num_slow_runs += is_slow(fault, backend)
            self.num_hangs += is_hang(fault.kind, backend)


def _place_in_bind(fault: Fault | None) -> str:
    """Return the exception of `bind()` or the constructor with its lines; "" for another end."""
    if fault is None or (fault.phase, fault.step) != ("bind", 0):
        return ""
    return "\n".join((fault.identity, *map(str, fault.details)))


def smallest(
    found: Found,
    smaller: Callable[[Found], Iterable[Form]],
    shown_in: Callable[[Form, Found], Found | None],
) -> Found:
    """Return a finding in the smallest form that shows it, as far as a budget allows.

    Args:
        found: The finding as it was met.
        smaller: Yields smaller forms of a finding, the most promising ones first.
        shown_in: Plays a form, and returns the finding as that shows it, or None. An
            `OutOfBudgetError` ends the search.
    """
    forms = iter(smaller(found))
    with contextlib.suppress(OutOfBudgetError):
        while (form := next(forms, None)) is not None:
            less = shown_in(form, found)
            if less is not None:
                found, forms = less, iter(smaller(less))
    return found
