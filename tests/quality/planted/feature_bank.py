"""What it takes to say that a feature of scenarios is needed: a defect only it shows."""

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

from syncverify.scenario import ParameterSpec, Scenario


@dataclass(frozen=True)
class FeatureDefect:
    """A planted defect that shows where scenarios have a feature, and nowhere else.

    Attributes:
        feature: As `topic=value`, of `syncverify.features.BEYOND`.
        subject: The synchronizer that has it.
        without: Makes of a scenario with the feature one like it that has it not.
        property: A property that it violates.
        cause: What went wrong.
        needs: Features without which no scenario has this one.
        examples: Scenarios that are drawn, at most, until one shows it.
    """

    feature: str
    subject: type[Any]
    without: Callable[[Scenario], Scenario]
    property: str
    cause: str
    needs: frozenset[str] = frozenset()
    examples: int = 150


def each_parameter(
    change: Callable[[ParameterSpec], ParameterSpec],
) -> Callable[[Scenario], Scenario]:
    """Change all parameters of a scenario."""

    def changed(scenario: Scenario) -> Scenario:
        return replace(scenario, parameters=tuple(map(change, scenario.parameters)))

    return changed
