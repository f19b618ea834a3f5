"""The proof that scenarios need a feature: a defect that no other feature shows."""

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

from syncverify.scenario.scenario import Scenario
from syncverify.scenario.specs import ParameterSpec


@dataclass(frozen=True)
class FeatureDefect:
    """A planted defect that shows where scenarios have a feature, and nowhere else.

    Attributes:
        feature: As `topic=value`, of `OPTIONAL` in `syncverify.scenario.feature_table`.
        subject: The synchronizer with the defect.
        without: Returns a scenario of the feature without the feature.
        property: A property that the defect violates.
        cause: Cause of the violation.
        needs: Features that every scenario with this one has.
        examples: Scenarios that are drawn, at most, until one shows the defect.
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
