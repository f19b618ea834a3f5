"""All properties, found by discovery, and the functions that judge runs by them."""

import pkgutil
from collections.abc import Collection
from dataclasses import dataclass
from importlib import import_module
from typing import Final

from syncverify.judge import properties
from syncverify.judge.properties.judgement import (
    DECLARED,
    Judgement,
    Needs,
    first_line,
    merge,
)
from syncverify.judge.reference import reference
from syncverify.judge.traced import Traced
from syncverify.judge.violation import Violation
from syncverify.scenario.contract import Capabilities
from syncverify.scenario.scenario import Scenario
from syncverify.trace.run import Run

for _module in pkgutil.iter_modules(properties.__path__):
    if _module.name != "registry":
        import_module(f"{properties.__name__}.{_module.name}")

# First the calls, then the order in which work may run, then the values that follow from both,
# then all others.
_DECLARED: Final = sorted(DECLARED, key=lambda each: each.order)
ALL_PROPERTIES: Final = tuple(each for each in _DECLARED if each.is_of_scenarios)
OF_TRAININGS: Final = tuple(each for each in _DECLARED if each.needs is Needs.VALUES)
# The guarantees by the name of their property, and those about any program.
STATEMENTS: Final = {each.name: each.statement for each in _DECLARED}
STATEMENTS_IN_ANY_PROGRAM: Final = {
    each.name: first_line(each.in_any_program) or each.statement
    for each in _DECLARED
    if each.in_any_program
}


@dataclass(frozen=True, slots=True)
class Verdict:
    """The verdict on one run, with the names of the properties that applied."""

    violations: list[Violation]  # one per property and cause, in the order of a report
    applied: tuple[str, ...]


def judge_run(
    scenario: Scenario,
    run: Run,
    capabilities: Capabilities,
    *,
    again: Run | None = None,
) -> Verdict:
    """Judge a run by all properties, or by those that need no data where it has none.

    `again` is a second run of the same scenario and schedule, if there is one.
    """
    oracle = reference(scenario, capabilities, run.device)
    judgement = Judgement(scenario, run, oracle, again)
    judging = [e for e in ALL_PROPERTIES if run.carries_data or not e.needs_data]
    violations = [
        violation
        for each in judging
        for violation in merge(each.name, each.check(judgement))
    ]
    applied = tuple(each.name for each in judging if each.applies(judgement))
    return Verdict(violations, applied)


def check(scenario: Scenario, run: Run, capabilities: Capabilities) -> list[Violation]:
    """Return the violations of `judge_run`."""
    return judge_run(scenario, run, capabilities).violations


def judge_traced(
    traced: Traced, names: Collection[str] | None = None
) -> list[Violation]:
    """Return the violations of any program, by the properties of these names or by all.

    Each pair of uses without an order is a violation of its own.
    """
    return [
        violation
        for each in _DECLARED
        if each.in_any_program and (names is None or each.name in names)
        for violation in merge(
            each.name,
            each.in_any_program(traced),
            lambda found: (found.cause, found.evidence.unordered),
        )
    ]
