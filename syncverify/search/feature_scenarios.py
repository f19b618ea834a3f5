"""Scenarios in which one feature is the only one beyond plain training steps."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Final

from hypothesis import Phase

from syncverify.scenario.contract import Capabilities
from syncverify.scenario.features import optional_features
from syncverify.scenario.scenario import Scenario
from syncverify.search.drawing import Draw, Drawing, EndedError
from syncverify.search.result import scenario_size

# A feature that no scenario has without another one.
COMPANIONS: Final = {
    "memory_format=channels_last": "shape=4 dims",
    "module=conv": "shape=4 dims",
    "module=conv_channels_last": "shape=4 dims",
}
# Of so many drawn scenarios one is played: small, medium and large ones.
_DRAWN_PER_PLAYED = 2
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
        """Draw scenarios with the feature, and choose small, medium and large ones."""
        drawn = dict[Scenario, None]()

        def take(scenario: Scenario, _: Draw) -> None:
            if self.has_feature(scenario):
                drawn[scenario] = None
            if len(drawn) == num_scenarios * _DRAWN_PER_PLAYED:
                raise EndedError

        self._drawing().for_each(take, Phase.generate)
        ordered = sorted(drawn, key=scenario_size)
        # Of one rank alone most mistakes do not show.
        several = [each for each in ordered if each.mesh.num_ranks > 1] or ordered
        step = max(1, len(several) // num_scenarios)
        return several[::step][:num_scenarios]

    def _drawing(self) -> Drawing:
        """Return the sequence from which the scenarios are drawn."""
        # Features that may be refused are left out of two scenarios of three.
        asked = replace(
            self.capabilities, right=self.capabilities.refused, refused=frozenset()
        )
        return Drawing(asked, self.max_ranks, _MAX_DRAWN, self.random_seed)


def scenarios_of(
    feature: str, own: Capabilities, max_ranks: int, random_seed: int
) -> FeatureScenarios:
    """Return the scenarios of one feature for a subject with the contract `own`."""
    companion = COMPANIONS.get(feature)
    asked = frozenset({feature, companion} if companion else {feature})
    return FeatureScenarios(feature, own.observing(asked), max_ranks, random_seed)
