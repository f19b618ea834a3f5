"""A property as its function declares it, by a decorator."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from typing import Any, Final, TypeVar

from syncverify.judge.cause import Mistake
from syncverify.judge.properties.judgement import Check, Judgement
from syncverify.judge.violation import Violation

_Check = TypeVar("_Check", bound=Check)
# All properties of the modules that were imported; `registry.py` imports all modules.
DECLARED: Final = list["Property"]()


@dataclass(slots=True, kw_only=True, eq=False)
class Property:
    """A named guarantee, declared above the function that checks it.

    Attributes:
        check: Yields findings: places where the property does not hold. Its name is that of
            the property, its docstring the specification.
        order: Place in a report, another one for each property.
        applies: Tells whether a run has something to judge; the first line of its docstring
            says when.
        example: One of the bugs that the property catches.
        causes: Causes that it alone gives; `OF_SEVERAL` in `cause.py` has the others.
        needs_data: Whether it needs collectives that move data, and accesses to memory.
        promise: Field of `Capabilities` without which nothing is judged; "" for none.
        leads_to: Names of properties that the same defect then violates, directly.
        follows: The other direction: names of properties whose defects violate this one too.
        never_gives: Causes of other properties that a violation of this one cannot have.
        is_about_values: Whether it compares numbers of gradients, so that a vague cause of it
            gives way to a precise one of another such property.
        in_any_program: Finds violations in what ranks of any program did, a `Traced`; None where
            only a scenario tells what is right.
        reads_traces_alone: Whether `check` itself finds them there.
        is_of_scenarios: Whether `check` judges scenarios.
    """

    check: Check = field(init=False)
    order: int
    applies: Callable[[Judgement], bool]
    example: str
    causes: tuple[Mistake, ...] = ()
    needs_data: bool = True
    promise: str = ""
    leads_to: tuple[str, ...] = ()
    follows: tuple[str, ...] = ()
    never_gives: tuple[str, ...] = ()
    is_about_values: bool = False
    in_any_program: Callable[[Any], Iterable[Violation]] | None = None
    reads_traces_alone: bool = False
    is_of_scenarios: bool = True

    def __call__(self, check: _Check) -> _Check:
        """Declare the property that a function checks."""
        self.check = check
        if self.reads_traces_alone:
            self.in_any_program = check
        DECLARED.append(self)
        return check

    @property
    def name(self) -> str:
        """Return the name used in reports, docs and tests."""
        return self.check.__name__

    @property
    def statement(self) -> str:
        """Return the guarantee in one sentence."""
        return _first_line(self.check)

    @property
    def statement_in_any_program(self) -> str:
        """Return the guarantee without the words of a scenario."""
        assert self.in_any_program is not None
        return _first_line(self.in_any_program) or self.statement

    @property
    def condition(self) -> str:
        """Return the condition under which the property applies, in one sentence."""
        return _first_line(self.applies)


def _first_line(function: Callable[..., object]) -> str:
    return (inspect.getdoc(function) or "").partition("\n")[0]
