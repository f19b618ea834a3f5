"""Coverage: features, and pairs of features, that the scenarios of a search contained."""

from __future__ import annotations

import itertools
from collections import Counter
from collections.abc import Iterable, Iterator

from syncverify.scenario.contract import EVERYTHING, Capabilities
from syncverify.scenario.coordinate_classes import representatives
from syncverify.scenario.feature_table import OPTIONAL_FEATURES
from syncverify.scenario.features import optional_features
from syncverify.scenario.layout import local_shape, most_group_bytes
from syncverify.scenario.plain_features import (
    MANY,
    Feature,
    dtype_features,
    is_large,
    is_plain,
    mesh_features,
    placement_features,
)
from syncverify.scenario.scenario import Scenario
from syncverify.scenario.space import Space
from syncverify.scenario.specs import ParameterSpec
from syncverify.scenario.vocabulary import PLAIN

_DEFAULT_SPACE = Space(EVERYTHING, max_ranks=4)


class Coverage:
    """Counts scenarios by the features, and pairs of features, that they contain.

    Attributes:
        space: Space of the scenarios.
        num_scenarios: Number of scenarios counted.
        applied: Number of scenarios in which a property had something to judge, by the
            property's name.
    """

    def __init__(self, space: Space = _DEFAULT_SPACE) -> None:
        self.space = space
        self.num_scenarios = 0
        self.applied: Counter[str] = Counter()
        self._counts: Counter[Feature] = Counter()
        self._pairs: Counter[frozenset[Feature]] = Counter()

    def add(self, scenario: Scenario, applied: Iterable[str] = ()) -> None:
        """Count one scenario, each of its features and properties once."""
        found = set(scenario_features(scenario))
        self.num_scenarios += 1
        self.applied.update(applied)
        self._counts.update(found)
        self._pairs.update(map(frozenset, itertools.combinations(found, 2)))

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
        in_space = self.space.values().items()
        features = [(topic, name) for topic, names in in_space for name in names]
        return [feature for feature in features if not self._counts[feature]]

    def pair_counts(self) -> dict[tuple[Feature, Feature], int]:
        """Return the number of scenarios of each pair of the space, zeros included."""
        return {pair: self._pairs[frozenset(pair)] for pair in self.space.pairs()}

    def missing_pairs(self) -> list[tuple[Feature, Feature]]:
        """List the pairs of the space that never occurred together."""
        return [pair for pair in self.space.pairs() if not self._pairs[frozenset(pair)]]


def scenario_features(scenario: Scenario) -> Iterator[Feature]:
    """Yield the features of one scenario, as (topic, value); a feature may repeat."""
    yield from mesh_features(scenario.mesh)
    yield from _numbers(scenario)
    if len(set(scenario.accumulations)) > 1:
        yield "accumulations", "varying"
    if len(scenario.groups) > 1:
        yield "buckets", f"{len(scenario.groups)} groups"
    if (
        len({(spec.dtype, spec.effective_grad_dtype) for spec in scenario.parameters})
        > 1
    ):
        yield "dtype", "several"
    for spec in scenario.parameters:
        yield from _parameter_features(scenario, spec)
    yield "buckets", "cap splits" if _cap_splits(scenario) else "cap does not split"
    if scenario.module not in {PLAIN, *OPTIONAL_FEATURES["module"]}:
        yield "module", scenario.module  # a layer of the user's own
    yield from optional_features(scenario)


def _numbers(scenario: Scenario) -> Iterator[Feature]:
    """Yield the numbers of a scenario, and which of them are large."""
    if len(scenario.parameters) >= MANY["parameters"]:
        yield "size", "many parameters"
    if any(is_large(spec) for spec in scenario.parameters):
        yield "size", "many elements"
    if scenario.num_steps >= MANY["steps"]:
        yield "size", "many steps"
    else:
        yield "steps", str(scenario.num_steps)
    for count in scenario.accumulations:
        if count >= MANY["micro-batches"]:
            yield "size", "many micro-batches"
        else:
            yield "accumulations", str(count)


def _parameter_features(scenario: Scenario, spec: ParameterSpec) -> Iterator[Feature]:
    yield from dtype_features(spec)
    yield from placement_features(scenario.mesh, spec)
    if spec.gradient != "finite":
        yield "gradient", spec.gradient
    if not spec.global_shape:
        yield "parameters", "scalar"
    if not spec.requires_grad:
        yield "parameters", "frozen"
    shapes = {
        local_shape(scenario.mesh, spec, rank) for rank in representatives(scenario)
    }
    if len(shapes) > 1:
        yield "parameters", "uneven or empty shard"


def refuses_plain_steps(scenario: Scenario, capabilities: Capabilities) -> bool:
    """Tell whether a contract allows a clear error for a plain value of a scenario."""
    return any(
        is_plain(*feature) and capabilities.may_refuse(*feature)
        for feature in scenario_features(scenario)
    )


def features_outside(scenario: Scenario, capabilities: Capabilities) -> list[Feature]:
    """List the features of a scenario that a contract leaves out, each once."""
    found = dict.fromkeys(scenario_features(scenario))
    return [feature for feature in found if not capabilities.covers(*feature)]


def plain_features_outside(scenario: Scenario, capabilities: Capabilities) -> list[str]:
    """List features of plain steps outside of a contract, which a subject cannot play."""
    return [
        f"{topic}={value}"
        for topic, value in features_outside(scenario, capabilities)
        if value not in OPTIONAL_FEATURES.get(topic, ())
    ]


def _cap_splits(scenario: Scenario) -> bool:
    """Tell whether the trainable parameters of some group exceed the cap on rank 0."""
    largest = most_group_bytes(scenario.mesh, scenario.parameters)
    return largest > scenario.bucket_cap_bytes
