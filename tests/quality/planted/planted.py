"""A planted defect, and the violation that it has to get."""

import functools
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

from syncverify.scenario.feature_row import Feature
from syncverify.scenario.feature_table import FEATURES
from syncverify.scenario.scenario import Scenario
from syncverify.scenario.specs import ParameterSpec

VALUE = "gradient_equals_reference"


@dataclass(frozen=True, kw_only=True)
class Planted:
    """A synchronizer with a defect, and the violation that it has to get.

    Attributes:
        subject: The synchronizer.
        cause: Cause of the violation.
        property: Property of the violation.
        shown_by: Features, as `topic=value`, that show the defect and no others; empty where
            plain steps show it.
        beside: Features that show another mistake of the synchronizer.
        needs: Features that every scenario with those has.
        without: Returns a scenario of the feature without the feature.
        twin: A synchronizer that is right with them.
        examples: Scenarios that are drawn, at most, until one shows the defect.
        random_seed: Seed of that drawing.
    """

    subject: type[Any]
    cause: str = "not_reduced"
    property: str = VALUE
    shown_by: frozenset[str] = frozenset()
    beside: frozenset[str] = frozenset()
    needs: frozenset[str] = frozenset()
    without: Callable[[Scenario], Scenario] | None = None
    twin: type[Any] | None = None
    examples: int = 150
    random_seed: int = 0

    @functools.cached_property
    def identity(self) -> tuple[str, str]:
        return self.property, self.cause

    @functools.cached_property
    def feature(self) -> str:
        """Return the one feature that shows the defect."""
        (feature,) = self.shown_by
        return feature

    @functools.cached_property
    def drawn(self) -> frozenset[str]:
        """Return those of its features that searches draw."""
        rare = {each for each in self.shown_by if FEATURES[Feature.of(each)].rare}
        return self.shown_by - rare


def planted(
    subject: type[Any], identity: tuple[str, str], *shown_by: str, **fields: Any
) -> Planted:
    """Plant a defect that some features show, or plain steps if none is given."""
    violated, cause = identity
    features = frozenset(shown_by)
    return Planted(
        subject=subject, property=violated, cause=cause, shown_by=features, **fields
    )


def each_parameter(
    change: Callable[[ParameterSpec], ParameterSpec],
) -> Callable[[Scenario], Scenario]:
    """Change all parameters of a scenario."""

    def changed(scenario: Scenario) -> Scenario:
        return replace(scenario, parameters=tuple(map(change, scenario.parameters)))

    return changed
