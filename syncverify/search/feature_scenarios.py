"""Scenarios in which one feature is the only one beyond plain training steps."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass, replace
from typing import Final

from hypothesis import Phase

from syncverify.scenario import step_plan
from syncverify.scenario.contract import Capabilities
from syncverify.scenario.features import optional_features, parameter_features
from syncverify.scenario.layout import reduce_axes
from syncverify.scenario.scenario import Scenario
from syncverify.scenario.vocabulary import BEFORE_STEP, FREEZING
from syncverify.search.drawing import Draw, Drawing, EndedError
from syncverify.search.result import scenario_size

# A feature that no scenario has without another one.
COMPANIONS: Final = {
    "memory_format=channels_last": "shape=4 dims",
    "module=conv": "shape=4 dims",
    "module=conv_channels_last": "shape=4 dims",
}
_MAX_DRAWN = 200


@dataclass(frozen=True, slots=True)
class FeatureScenarios:
    """Scenarios of one feature, for one contract.

    Attributes:
        feature: The feature, as `topic=value`.
        capabilities: The contract of plain steps and this feature, which may be refused.
        max_ranks: Largest world size.
        random_seed: Seed of the scenarios.
    """

    feature: str
    capabilities: Capabilities
    max_ranks: int
    random_seed: int

    def has_feature(self, scenario: Scenario) -> bool:
        """Tell whether a scenario has the feature."""
        return self.feature in map("=".join, optional_features(scenario))

    def smallest_first(self, num_scenarios: int) -> list[Scenario]:
        """Draw scenarios with the feature, the smallest first.

        Returns:
            Up to `num_scenarios` scenarios. Those in which the feature can show an effect
            come first.
        """
        telling, others = dict[Scenario, None](), dict[Scenario, None]()

        def take(scenario: Scenario, _: Draw) -> None:
            if self.has_feature(scenario):
                kept = telling if self._is_telling(scenario) else others
                kept[scenario] = None
            if len(telling) == num_scenarios:
                raise EndedError

        self._drawing().for_each(take, Phase.generate)
        ordered = sorted(telling, key=scenario_size)
        return (
            ordered + sorted(others, key=scenario_size)[: num_scenarios - len(ordered)]
        )

    def _is_telling(self, scenario: Scenario) -> bool:
        """Tell whether the feature concerns a reduced parameter, and steps show an event."""
        topic, _, value = self.feature.partition("=")
        own = (topic, value)
        specs = scenario.parameters
        if any(own in parameter_features(spec) for spec in specs):
            specs = tuple(spec for spec in specs if own in parameter_features(spec))
        if value in FREEZING:
            specs = tuple(s for s in specs if step_plan.may_freeze(scenario, s))
        return any(
            spec.requires_grad and reduce_axes(scenario.mesh, spec) for spec in specs
        ) and (topic != "event" or value in _telling_events(scenario, value))

    def _drawing(self) -> Drawing:
        """Return the sequence from which the scenarios are drawn."""
        # Features that may be refused are left out of two scenarios of three.
        asked = replace(
            self.capabilities, right=self.capabilities.refused, refused=frozenset()
        )
        # Features of one topic would otherwise be drawn alike, with one and the same luck.
        digest = hashlib.sha256(f"{self.random_seed}: {self.feature}".encode()).digest()
        seed = int.from_bytes(digest[:4])
        return Drawing(asked, self.max_ranks, _MAX_DRAWN, seed)


def scenarios_of(
    feature: str, own: Capabilities, max_ranks: int, random_seed: int
) -> FeatureScenarios:
    """Return the scenarios of one feature for a subject with the contract `own`."""
    companion = COMPANIONS.get(feature)
    asked = frozenset({feature, companion} if companion else {feature})
    return FeatureScenarios(feature, own.observing(asked), max_ranks, random_seed)


def _telling_events(scenario: Scenario, event: str) -> tuple[str, ...]:
    """Return the events of the steps in which one event can show an effect."""
    # A synchronizer may take its parameters in the first forward, after such a change.
    return scenario.events[1:] if event in BEFORE_STEP else scenario.events[:-1]
