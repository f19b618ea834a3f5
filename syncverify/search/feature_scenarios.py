"""Scenarios in which one feature is the only one beyond plain training steps.

Note [Words are put in, the rest is drawn]
    Most features are words that any plain scenario can take: an event of a step, a use of a
    parameter, a way to run backward. One sequence of plain scenarios serves all of them, each
    feature in an order of its own. Scenarios with another mesh, placement, shape, dtype,
    memory format or module are drawn, and those without the feature thrown away, which takes
    ten times as long.
"""

from __future__ import annotations

import contextlib
import functools
import hashlib
import random
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any, Final

from hypothesis import Phase

from syncverify.scenario import step_plan
from syncverify.scenario.contract import Capabilities
from syncverify.scenario.features import optional_features, parameter_features
from syncverify.scenario.layout import reduce_axes
from syncverify.scenario.plain_features import PLAIN_VALUES
from syncverify.scenario.scenario import Scenario
from syncverify.scenario.vocabulary import BEFORE_STEP, FREEZING, PLAIN
from syncverify.search.drawing import Draw, Drawing, EndedError
from syncverify.search.result import scenario_size

# A feature that no scenario has without another one.
COMPANIONS: Final = {
    "memory_format=channels_last": "shape=4 dims",
    "module=conv": "shape=4 dims",
    "module=conv_channels_last": "shape=4 dims",
}
_MAX_DRAWN = 200
_NUM_PLAIN = 120
_LARGE: Final = frozenset(f"size={name}" for name in PLAIN_VALUES["size"])
# Topics whose words any plain scenario can take.
_PARAMETER_TOPICS: Final = frozenset({"used", "use"})
_WORD_TOPICS: Final = _PARAMETER_TOPICS | {
    *("event", "launch", "readiness", "backward", "synchronizers"),
}
# Features without an effect on a single parameter, or on a single micro-batch.
_OF_TWO_PARAMETERS: Final = frozenset(
    {"readiness=by_rank", "launch=parameter_streams", "synchronizers=two"}
)
_OF_TWO_MICRO_BATCHES: Final = frozenset(
    {
        *("used=not_in_first_micro_batch", "used=not_in_last_micro_batch"),
        *("event=missing_backward", "event=tail"),
    }
)
# Two axes cut one dim, and a plain mesh has no third one to reduce over.
_NEVER_REDUCED: Final = frozenset({("placement", "strided")})


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

        def take(scenario: Scenario) -> None:
            if self.has_feature(scenario):
                kept = telling if self._is_telling(scenario) else others
                kept[scenario] = None
            if len(telling) == num_scenarios:
                raise EndedError

        with contextlib.suppress(EndedError):
            self._offer(take)
        ordered = sorted(telling, key=scenario_size)
        return (
            ordered + sorted(others, key=scenario_size)[: num_scenarios - len(ordered)]
        )

    def _offer(self, take: Callable[[Scenario], None]) -> None:
        """Give scenarios to a function, most of them with the feature."""
        topic, _, word = self.feature.partition("=")
        if topic not in _WORD_TOPICS:
            self._drawing().for_each(lambda each, _: take(each), Phase.generate)
            return
        # Features of one topic would otherwise get the same scenarios, with the same luck.
        chance = random.Random(self._seed())
        plain = _plain_scenarios(
            self.capabilities.plain(), self.max_ranks, self.random_seed
        )
        for scenario in chance.sample(plain, len(plain)):
            take(_with_word(scenario, topic, word, chance))

    def _is_telling(self, scenario: Scenario) -> bool:
        """Tell whether the feature concerns reduced parameters, and steps show an event."""
        topic, _, value = self.feature.partition("=")
        own = (topic, value)
        reduced = [
            spec
            for spec in scenario.parameters
            if spec.requires_grad
            and (reduce_axes(scenario.mesh, spec) or own in _NEVER_REDUCED)
        ]
        specs = reduced
        if any(own in parameter_features(spec) for spec in scenario.parameters):
            specs = [spec for spec in specs if own in parameter_features(spec)]
        if value in FREEZING:
            specs = [s for s in specs if step_plan.may_freeze(scenario, s)]
        has_micro_batches = max(scenario.accumulations) > 1
        return (
            len(specs) >= (2 if self.feature in _OF_TWO_PARAMETERS else 1)
            # What is wrong with unused parameters often shows on those beside them.
            and (topic != "used" or len(specs) < len(reduced))
            and (has_micro_batches or self.feature not in _OF_TWO_MICRO_BATCHES)
            and (topic != "event" or value in _telling_events(scenario, value))
        )

    def _drawing(self) -> Drawing:
        """Return the sequence from which the scenarios are drawn."""
        # Features that may be refused are left out of two scenarios of three.
        asked = replace(
            self.capabilities, right=self.capabilities.refused, refused=frozenset()
        )
        return Drawing(asked, self.max_ranks, _MAX_DRAWN, self._seed())

    def _seed(self) -> int:
        digest = hashlib.sha256(f"{self.random_seed}: {self.feature}".encode()).digest()
        return int.from_bytes(digest[:4])


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


@functools.lru_cache(maxsize=8)
def _plain_scenarios(
    capabilities: Capabilities, max_ranks: int, random_seed: int
) -> tuple[Scenario, ...]:
    """Draw distinct plain scenarios of small numbers; some words cost much more on large ones."""
    drawn = dict[Scenario, None]()

    def keep(scenario: Scenario, _: Draw) -> None:
        drawn[scenario] = None

    small = replace(capabilities, outside=capabilities.outside | _LARGE)
    drawing = Drawing(small, max_ranks, _NUM_PLAIN, random_seed)
    drawing.for_each(keep, Phase.generate)
    return tuple(drawn)


def _with_word(
    scenario: Scenario, topic: str, word: str, chance: random.Random
) -> Scenario:
    """Put a word into a plain scenario: once, or for some of the parameters or steps."""
    if topic == "event":
        chosen = _some(scenario.num_steps, chance)
        steps = range(scenario.num_steps)
        return replace(
            scenario, events=tuple(word if n in chosen else PLAIN for n in steps)
        )
    changed: dict[str, Any] = {topic: word}
    if topic not in _PARAMETER_TOPICS:
        return replace(scenario, **changed)
    chosen = _some(len(scenario.parameters), chance)
    return replace(
        scenario,
        parameters=tuple(
            replace(spec, **changed) if n in chosen else spec
            for n, spec in enumerate(scenario.parameters)
        ),
    )


def _some(count: int, chance: random.Random) -> list[int]:
    """Choose at least one index of `count`."""
    return chance.sample(range(count), chance.randint(1, count))
