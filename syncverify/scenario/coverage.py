"""Coverage: features, and pairs of features, on which the scenarios of a search judged something."""

from __future__ import annotations

import itertools
from collections import Counter
from collections.abc import Iterable

from syncverify.scenario.contract import EVERYTHING
from syncverify.scenario.feature_row import Feature
from syncverify.scenario.features import features_of, refusable_features
from syncverify.scenario.judged_features import judged_features
from syncverify.scenario.scenario import Scenario
from syncverify.scenario.space import Space

_DEFAULT_SPACE = Space(EVERYTHING, max_ranks=4)


class Coverage:
    """Counts scenarios by the features, and pairs of features, on which they judge something."""

    def __init__(self, space: Space = _DEFAULT_SPACE) -> None:
        self.space = space
        self.num_scenarios = 0
        # Scenarios in which a property had something to judge, by its name.
        self.applied: Counter[str] = Counter()
        self._has_sums = space.has_sums
        self._counts: Counter[Feature] = Counter()
        self._pairs: Counter[frozenset[Feature]] = Counter()

    def add(
        self,
        scenario: Scenario,
        applied: Iterable[str] = (),
        refused_in: int | None = None,
    ) -> None:
        """Count one scenario, each of its properties that `applied` and judged features once.

        An error ended the run in the step `refused_in`; None stands for a run that came to its end.
        """
        found = self.judged(scenario, refused_in)
        self.num_scenarios += 1
        self.applied.update(applied)
        self._counts.update(found)
        self._pairs.update(map(frozenset, itertools.combinations(found, 2)))

    def judged(self, scenario: Scenario, refused_in: int | None = None) -> set[Feature]:
        """Return the features of a scenario on which a property judges something.

        A step that the subject may refuse because of some features has judged these.
        """
        if not self._has_sums:  # of one rank, gradients are judged as they are
            return {*features_of(scenario)}
        found = {*judged_features(scenario, refused_in)}
        if refused_in is not None:
            own = self.space.capabilities
            found |= {*refusable_features(scenario, own, refused_in)}
        return found

    def update(self, other: Coverage) -> None:
        """Add the counts of another search."""
        self.num_scenarios += other.num_scenarios
        self.applied.update(other.applied)
        self._counts.update(other._counts)
        self._pairs.update(other._pairs)

    def table(self) -> dict[str, dict[str, int]]:
        """Return the number of scenarios by topic and feature, zeros included."""
        in_space = self.space.values()
        counts = {topic: dict.fromkeys(names, 0) for topic, names in in_space.items()}
        for (topic, name), count in sorted(self._counts.items()):
            counts.setdefault(topic, {})[name] = count
        return counts

    def missing_values(self) -> list[Feature]:
        """List the features of the space that never occurred."""
        return [each for each in self.space.features() if not self._counts[each]]

    def pair_counts(self) -> dict[tuple[Feature, Feature], int]:
        """Return the number of scenarios of each pair of the space, zeros included."""
        return {pair: self._pairs[frozenset(pair)] for pair in self.space.pairs()}

    def missing_pairs(self) -> list[tuple[Feature, Feature]]:
        """List the pairs of the space that never occurred together."""
        return [pair for pair in self.space.pairs() if not self._pairs[frozenset(pair)]]
