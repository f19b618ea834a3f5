"""All properties and causes, found by discovery, and the function that judges a run by them."""

from __future__ import annotations

import pkgutil
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from importlib import import_module
from typing import Final

from syncverify.judge import properties
from syncverify.judge.cause import OF_SEVERAL, Mistake
from syncverify.judge.properties.judgement import Judgement, merge
from syncverify.judge.properties.property import Property
from syncverify.judge.reference import reference
from syncverify.judge.violation import Violation
from syncverify.scenario.contract import Capabilities
from syncverify.scenario.scenario import Scenario
from syncverify.trace.run import Run


def declared(folder: Iterable[str], package: str) -> tuple[Property, ...]:
    """Return the properties that the modules of a package declare, in the order of a report."""
    names = (f"{package}.{module.name}" for module in pkgutil.iter_modules(folder))
    found = {
        each.name: each
        for name in names
        for each in vars(import_module(name)).values()
        if isinstance(each, Property)
    }
    return tuple(sorted(found.values(), key=lambda each: each.order))


# First the calls, then the order in which work may run, then the values that follow from both,
# then all others.
ALL_PROPERTIES: Final = declared(properties.__path__, properties.__name__)
# The causes of violations, by name.
CAUSES: Final[Mapping[str, Mistake]] = {
    each.name: each
    for each in (*(c for one in ALL_PROPERTIES for c in one.causes), *OF_SEVERAL)
}


@dataclass(frozen=True, slots=True)
class Verdict:
    """The verdict on one run.

    Attributes:
        violations: One entry per property and cause, in the order of `ALL_PROPERTIES`.
    """

    violations: list[Violation]
    applied: tuple[str, ...]


def judge_run(
    scenario: Scenario,
    run: Run,
    capabilities: Capabilities,
    *,
    again: Run | None = None,
) -> Verdict:
    """Judge a run by all properties, or by those that need no data where it has none.

    Args:
        scenario: The scenario that was played.
        run: Its observations and traces.
        capabilities: The promises of the subject.
        again: A second run of the same scenario and schedule, if there is one.

    Returns:
        The violations, and the names of the properties that applied.
    """
    judgement = Judgement(
        scenario, run, reference(scenario, capabilities, run.device), again
    )
    judging = [
        each for each in ALL_PROPERTIES if run.carries_data or not each.needs_data
    ]
    violations = [
        violation
        for each in judging
        for violation in merge(each.name, each.check(judgement))
    ]
    applied = tuple(each.name for each in judging if each.applies(judgement))
    return Verdict(violations, applied)


def check(
    scenario: Scenario,
    run: Run,
    capabilities: Capabilities,
    *,
    again: Run | None = None,
) -> list[Violation]:
    """Return the violations of `judge_run`, which takes the same arguments."""
    return judge_run(scenario, run, capabilities, again=again).violations
