"""A property as its module declares it: one value, found by discovery."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterable
from dataclasses import KW_ONLY, dataclass

from syncverify.judge.cause import Mistake
from syncverify.judge.properties.judgement import Check, Judgement
from syncverify.judge.traced import Traced
from syncverify.judge.violation import Violation


@dataclass(frozen=True, slots=True)
class Property:
    """A named guarantee.

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
        in_any_program: Finds violations in the traces of any program, such as a script; None
            where only a scenario tells what is right.
        is_of_scenarios: Whether `check` judges scenarios.
    """

    check: Check
    _: KW_ONLY
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
    in_any_program: Callable[[Traced], Iterable[Violation]] | None = None
    is_of_scenarios: bool = True

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
        return _first_line(self.in_any_program) or self.statement

    @property
    def condition(self) -> str:
        """Return the condition under which the property applies, in one sentence."""
        return _first_line(self.applies)


def _first_line(function: Callable[..., object] | None) -> str:
    return (inspect.getdoc(function) or "").partition("\n")[0]
