"""Coverage: features, and pairs of features, on which the scenarios of a search judged something.

`features_of` lists what a scenario contains. A feature counts only if the subject could
show a mistake with it. Examples of features that a scenario contains and that show nothing: many
buckets that no rank reduces, a dtype of a frozen parameter, an event after the last judged step.

| feature | is judged on |
|---|---|
| most features | the parameters that ranks sum, and their gradients in judged steps |
| a row with `shows_on="trained"` | the parameters that have a gradient in a judged step |
| a row with `shows_on="any"` | all parameters |
| a word of `used` | the parameters that ranks would sum |
| an event | the gradients of its own step, or of a later step: `EventRow.shows_later` |

A judged step has a backward and a `wait()`, and no collective that is meant to fail came before.
"""

import copy
import itertools
import math
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Self

from syncverify.scenario import step_plan
from syncverify.scenario.contract import EVERYTHING
from syncverify.scenario.contributions import shows_special_values
from syncverify.scenario.feature_row import Feature, Row, base_word
from syncverify.scenario.feature_table import (
    EVENTS,
    FAILING,
    FEATURES,
    has_uneven_parts,
)
from syncverify.scenario.features import (
    features_of,
    features_of_parameter,
    refusable_features,
)
from syncverify.scenario.layout import local_shape, reduce_axes
from syncverify.scenario.scenario import Scenario
from syncverify.scenario.space import Space
from syncverify.scenario.specs import ParameterSpec, sharded_dim

_DEFAULT_SPACE = Space(EVERYTHING, max_ranks=4)
_ALONE = Feature("ranks", "1")
_OF_NO_ROW = Row("")


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

    def update(self, other: Self) -> None:
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


def judged_features(
    scenario: Scenario, num_steps: int | None = None
) -> frozenset[Feature]:
    """Return the features of a scenario on which a property judges something, each once.

    `num_steps` counts the steps before the run ended by an error that the contract allows; None
    stands for a run that came to its end.
    """
    played = scenario.num_steps if num_steps is None else num_steps
    steps = [*_judged_steps(scenario, played)]
    trained = [s for s in scenario.trainable if _has_gradient(scenario, s, steps)]
    summed = [spec for spec in trained if _is_summed(scenario, spec)]
    part = _JudgedPart(scenario, steps, trained, summed)
    shown = {*part.of_sums(), *part.of_trained(), *part.of_events(played)}
    return frozenset(shown.intersection(features_of(scenario)))


@dataclass(frozen=True, slots=True)
class _JudgedPart:
    """The parameters and steps of a scenario on which gradients are judged."""

    scenario: Scenario  # the whole one
    steps: Sequence[int]
    trained: Sequence[ParameterSpec]  # with a gradient in a judged step
    summed: Sequence[ParameterSpec]  # with elements, and a gradient that ranks sum

    def of_sums(self) -> Iterator[Feature]:
        """Yield the features that sums over ranks show."""
        if not self.summed:
            return
        for feature in features_of(_reduced_to(self.scenario, self.summed, self.steps)):
            row = FEATURES.get(feature, _OF_NO_ROW)
            if len(self.summed) >= row.fewest_parameters and self._shows(feature):
                yield feature
        trained = _reduced_to(self.scenario, self.trained, self.steps)
        if len(self.trained) > len(self.summed) and has_uneven_parts(trained):
            yield Feature("parameters", "uneven or empty shard")

    def _shows(self, feature: Feature) -> bool:
        """Tell whether sums show a feature that they have."""
        mesh = self.scenario.mesh
        match feature:
            case ("mesh", "permuted"):  # the whole world is one group in each order
                sizes = [size for size in mesh.shape if size > 1]
                return any(len(reduce_axes(mesh, s)) < len(sizes) for s in self.summed)
            case ("gradient", word):
                return any(
                    base_word(spec.gradient) == word
                    and shows_special_values(self.scenario, spec, step)
                    for spec in self.summed
                    for step in self.steps
                )
            case ("memory_format", word):
                found = [spec for spec in self.summed if spec.memory_format == word]
                return any(_differs_in_memory(self.scenario, spec) for spec in found)
            case ("use", "added_to_another"):
                return any(self._has_partner(spec) for spec in self.summed)
            case ("used", _) | ("parameters", "sharded"):
                return False  # see `of_trained`
        return True

    def _has_partner(self, spec: ParameterSpec) -> bool:
        """Tell whether an earlier parameter is added to one with `use=added_to_another`."""
        mesh, listed = self.scenario.mesh, [*self.scenario.parameters]
        earlier = [s for s in listed[: listed.index(spec)] if s in self.trained]
        alike = {(other.dtype, local_shape(mesh, other, 0)) for other in earlier}
        own = spec.dtype, local_shape(mesh, spec, 0)
        return spec.use == "added_to_another" and own in alike

    def of_trained(self) -> Iterator[Feature]:
        """Yield the features of gradients that no rank sums, and of parameters without one."""
        scenario, mesh = self.scenario, self.scenario.mesh
        if not self.steps:
            return
        if self.trained and mesh.num_ranks == 1:
            yield _ALONE
        for spec in scenario.parameters:
            for feature in features_of_parameter(mesh, spec):
                if self._shows_on(spec, feature):
                    yield feature

    def _shows_on(self, spec: ParameterSpec, feature: Feature) -> bool:
        """Tell whether a parameter shows a feature that it has, though ranks may not sum it."""
        mesh, row = self.scenario.mesh, FEATURES[feature]
        if feature.topic == "used":
            longest = max(self.scenario.accumulations[step] for step in self.steps)
            is_summed = spec.requires_grad and _is_summed(self.scenario, spec)
            return is_summed and longest >= row.fewest_micro_batches
        if row.shows_on == "any":
            return True
        if row.shows_on == "summed" or spec not in self.trained:
            return False
        match feature:
            case ("parameters", "sharded"):  # several ranks have different parts
                placed = zip(mesh.shape, spec.placements or (), strict=False)
                return any(
                    n > 1 and sharded_dim(code) is not None for n, code in placed
                )
            case ("parameters", "ordinary"):
                return mesh.num_ranks > 1
        return True

    def of_events(self, num_steps: int) -> Iterator[Feature]:
        """Yield the events that show in gradients of their own step, or of a later one."""
        scenario = self.scenario
        summed = [s for s in scenario.trainable if _is_summed(scenario, s)]
        for step, word in enumerate(scenario.events[:num_steps]):
            row = EVENTS[word]
            if scenario.accumulations[step] < row.fewest_micro_batches:
                continue
            if row.shows_later:
                at = [later for later in self.steps if later > step]
            else:
                before = map(base_word, scenario.events[:step])
                at = [step] if row.waits and FAILING not in before else []
            # A step without a backward shows gradients that are left over.
            is_shown = at and any(
                not row.has_backward or _has_gradient(scenario, spec, at)
                for spec in summed
            )
            changes_some = row.change != "freeze" or any(
                step_plan.may_freeze(scenario, spec) for spec in summed
            )
            if is_shown and changes_some:
                yield Feature("event", base_word(word))


def _judged_steps(scenario: Scenario, num_steps: int) -> Iterator[int]:
    """Yield the steps whose gradients are judged after `wait()`."""
    for step in range(num_steps):
        row = EVENTS[scenario.step_event(step)]
        if base_word(row.value) == FAILING:
            return
        if row.has_backward and row.waits and not row.is_thrown_away:
            yield step


def _has_gradient(
    scenario: Scenario, spec: ParameterSpec, steps: Iterable[int]
) -> bool:
    ranks = range(scenario.mesh.num_ranks)
    return any(step_plan.has_gradient(scenario, spec, ranks, step) for step in steps)


def _is_summed(scenario: Scenario, spec: ParameterSpec) -> bool:
    """Tell whether ranks sum elements of a parameter's gradient."""
    return bool(reduce_axes(scenario.mesh, spec)) and 0 not in spec.global_shape


def _differs_in_memory(scenario: Scenario, spec: ParameterSpec) -> bool:
    """Tell whether the memory format puts the elements of some rank in another order."""
    shape = local_shape(scenario.mesh, spec, 0)
    if spec.memory_format == "channels_last":
        return shape[1] > 1 and math.prod(shape[2:]) > 1
    return min(shape[-2:]) > 1


def _reduced_to(
    scenario: Scenario, parameters: Sequence[ParameterSpec], steps: Sequence[int]
) -> Scenario:
    """Return a scenario of some parameters and steps, for the readers of features alone.

    It keeps no rule of scenarios, such as that the next group of a parameter exists.
    """
    kept = copy.copy(scenario)
    counts = tuple(scenario.accumulations[step] for step in steps)
    changes = {"parameters": tuple(parameters), "accumulations": counts, "events": ()}
    for name, value in changes.items():
        object.__setattr__(kept, name, value)
    return kept
