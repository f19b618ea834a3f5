"""Scenarios in which one feature is the only one beyond plain training steps.

Note [Words are put in, the rest is drawn]
    Most features are words that any plain scenario can take: an event of a step, a use of a
    parameter, a way to run backward. One sequence of plain scenarios serves all of them, each
    feature in an order of its own. Scenarios with a feature of another topic, such as a mesh,
    a shape or a dtype, are drawn, and those without the feature thrown away, which takes ten
    times as long.
"""

import contextlib
import functools
import random
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Final

from hypothesis import Phase

from syncverify.scenario import step_plan
from syncverify.scenario.contract import Capabilities
from syncverify.scenario.feature_row import EventRow, Feature
from syncverify.scenario.feature_table import FEATURES, TABLE
from syncverify.scenario.features import features_of, parameter_features, size_of
from syncverify.scenario.layout import reduce_axes
from syncverify.scenario.scenario import Scenario
from syncverify.scenario.words import with_word, words_at
from syncverify.search.drawing import Drawing, EndedError, named_seed

_MAX_DRAWN = 200
_NUM_PLAIN = 120
_LARGE: Final = frozenset(str(each) for each in FEATURES if each.topic == "size")


@dataclass(frozen=True, slots=True)
class FeatureScenarios:
    """Scenarios of one feature, for a contract of plain steps and this feature, which may be refused."""

    feature: Feature
    capabilities: Capabilities
    max_ranks: int
    random_seed: int

    def has_feature(self, scenario: Scenario) -> bool:
        """Tell whether a scenario has the feature."""
        return self.feature in features_of(scenario)

    # Verifications in one process, such as the tests of a project, ask for the same ones.
    @functools.lru_cache(maxsize=1024)  # noqa: B019  # of values, which hold little
    def smallest_first(self, num_scenarios: int) -> tuple[Scenario, ...]:
        """Return up to a number of scenarios with the feature, the smallest first.

        Those in which the feature can show an effect come first.
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
        listed = (*sorted(telling, key=size_of), *sorted(others, key=size_of))
        return listed[:num_scenarios]

    def _offer(self, take: Callable[[Scenario], None]) -> None:
        """Give scenarios to a function, most of them with the feature."""
        # Features of one topic would otherwise get the same scenarios, with the same luck.
        own, seed = self.capabilities, named_seed(self.random_seed, self.feature)
        if not TABLE[self.feature.topic].fits_any:
            # Features that may be refused are left out of two scenarios of three.
            asked = replace(own, right=own.refused, refused=frozenset())
            drawing = Drawing(asked, self.max_ranks, _MAX_DRAWN, seed)
            drawing.for_each(lambda each, _: take(each), Phase.generate)
            return
        chance = random.Random(seed)
        plain = _plain_scenarios(own.plain(), self.max_ranks, self.random_seed)
        for scenario in chance.sample(plain, len(plain)):
            take(_with_word_by_chance(scenario, *self.feature, chance))

    def _is_telling(self, scenario: Scenario) -> bool:
        """Tell whether the feature concerns reduced parameters, and steps show an event."""
        row, mesh, listed = FEATURES[self.feature], scenario.mesh, scenario.parameters
        event = row if isinstance(row, EventRow) else None
        reduced = scenario.trainable
        if not row.never_reduced:
            reduced = tuple(spec for spec in reduced if reduce_axes(mesh, spec))
        own = [s for s in listed if self.feature in parameter_features(mesh, s)]
        specs = [spec for spec in reduced if spec in own or not own]
        if event is not None and event.change == "freeze":
            specs = [s for s in specs if step_plan.may_freeze(scenario, s)]
        return (
            len(specs) >= row.fewest_parameters
            # What is wrong with unused parameters often shows on those beside them.
            and (self.feature.topic != "used" or len(specs) < len(reduced))
            and max(scenario.accumulations) >= row.fewest_micro_batches
            and (event is None or _shows(event, scenario))
        )


def scenarios_of(
    feature: str, own: Capabilities, max_ranks: int, random_seed: int
) -> FeatureScenarios:
    """Return the scenarios of one feature for a subject with the contract `own`."""
    asked = Feature.of(feature)
    names = frozenset({feature, FEATURES[asked].needs} - {""})
    return FeatureScenarios(asked, own.observing(names), max_ranks, random_seed)


def _shows(event: EventRow, scenario: Scenario) -> bool:
    """Tell whether some step can show an effect of an event."""
    # A synchronizer may take its parameters in the first forward, after such a change.
    late = event.change and not event.is_before_zero
    return event.value in (scenario.events[1:] if late else scenario.events[:-1])


@functools.lru_cache(maxsize=32)
def _plain_scenarios(
    capabilities: Capabilities, max_ranks: int, random_seed: int
) -> tuple[Scenario, ...]:
    """Draw distinct plain scenarios of small numbers; some words cost much more on large ones."""
    small = replace(capabilities, outside=capabilities.outside | _LARGE)
    drawing = Drawing(small, max_ranks, _NUM_PLAIN, random_seed)
    return tuple(dict.fromkeys(drawing.drawn()))


def _with_word_by_chance(
    scenario: Scenario, topic: str, word: str, chance: random.Random
) -> Scenario:
    """Put a word into a plain scenario: once, or for some of the parameters or steps."""
    places = range(len(words_at(scenario, topic)))
    if topic != "event" and TABLE[topic].part == "scenario":
        return with_word(scenario, topic, word, places)
    some = chance.sample(places, chance.randint(1, len(places)))
    return with_word(scenario, topic, word, some)
