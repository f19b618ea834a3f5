"""The features of a scenario on which a property judges something.

`features_of` lists what a scenario contains. Coverage counts a feature only if the subject could
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

from __future__ import annotations

import copy
import math
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

from syncverify.scenario import step_plan
from syncverify.scenario.contributions import shows_special_values
from syncverify.scenario.feature_row import Feature, Row, base_word
from syncverify.scenario.feature_table import (
    EVENTS,
    FAILING,
    FEATURES,
    has_uneven_parts,
)
from syncverify.scenario.features import features_of, features_of_parameter
from syncverify.scenario.layout import local_shape, reduce_axes
from syncverify.scenario.scenario import Scenario
from syncverify.scenario.specs import ParameterSpec, sharded_dim

_ALONE = Feature("ranks", "1")
_OF_NO_ROW = Row("")


def judged_features(
    scenario: Scenario, num_steps: int | None = None
) -> frozenset[Feature]:
    """Return the features of a scenario on which a property judges something, each once.

    `num_steps` counts the steps before the run ended by an error that the contract allows; None
    stands for a run that came to its end.
    """
    played = scenario.num_steps if num_steps is None else num_steps
    part = _JudgedPart.of(scenario, played)
    shown = {*part.of_sums(), *part.of_trained(), *part.of_events(played)}
    return frozenset(shown.intersection(features_of(scenario)))


@dataclass(frozen=True, slots=True)
class _JudgedPart:
    """The parameters and steps of a scenario on which gradients are judged."""

    scenario: Scenario  # the whole one
    steps: Sequence[int]
    trained: Sequence[ParameterSpec]  # with a gradient in a judged step
    summed: Sequence[ParameterSpec]  # with elements, and a gradient that ranks sum

    @classmethod
    def of(cls, scenario: Scenario, num_steps: int) -> _JudgedPart:
        steps = [*_judged_steps(scenario, num_steps)]
        trained = [s for s in scenario.trainable if _has_gradient(scenario, s, steps)]
        summed = [spec for spec in trained if _is_summed(scenario, spec)]
        return cls(scenario, steps, trained, summed)

    def of_sums(self) -> Iterator[Feature]:
        """Yield the features that sums over ranks show."""
        if not self.summed:
            return
        for feature in features_of(_reduced_to(self.scenario, self.summed, self.steps)):
            row = FEATURES.get(feature, _OF_NO_ROW)
            if len(self.summed) >= row.fewest_parameters and self._shows(feature):
                yield feature
        has_more = len(self.trained) > len(self.summed)
        if has_more and has_uneven_parts(
            _reduced_to(self.scenario, self.trained, self.steps)
        ):
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
                return any(
                    spec.memory_format == word
                    and _differs_in_memory(self.scenario, spec)
                    for spec in self.summed
                )
            case ("use", "added_to_another"):
                return any(self._has_partner(spec) for spec in self.summed)
            case ("used", _) | ("parameters", "sharded"):
                return False  # see `of_trained`
        return True

    def _has_partner(self, spec: ParameterSpec) -> bool:
        """Tell whether an earlier parameter is added to one with `use=added_to_another`."""
        mesh, listed = self.scenario.mesh, [*self.scenario.parameters]
        return spec.use == "added_to_another" and any(
            (other.dtype, local_shape(mesh, other, 0))
            == (spec.dtype, local_shape(mesh, spec, 0))
            for other in listed[: listed.index(spec)]
            if other in self.trained
        )

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
            case ("parameters", "sharded"):
                return _is_cut(self.scenario, spec)
            case ("parameters", "ordinary"):
                return mesh.num_ranks > 1
        return True

    def of_events(self, num_steps: int) -> Iterator[Feature]:
        """Yield the events that show in gradients of their own step, or of a later one."""
        scenario = self.scenario
        for step, word in enumerate(scenario.events[:num_steps]):
            row = EVENTS[word]
            if scenario.accumulations[step] < row.fewest_micro_batches:
                continue
            if row.shows_later:
                at = [later for later in self.steps if later > step]
            else:
                before = map(base_word, scenario.events[:step])
                at = [step] if row.waits and FAILING not in before else []
            summed = [s for s in scenario.trainable if _is_summed(scenario, s)]
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


def _is_cut(scenario: Scenario, spec: ParameterSpec) -> bool:
    """Tell whether several ranks have different parts of a parameter."""
    placed = zip(scenario.mesh.shape, spec.placements or (), strict=False)
    return any(size > 1 and sharded_dim(code) is not None for size, code in placed)


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
    object.__setattr__(kept, "parameters", tuple(parameters))
    object.__setattr__(kept, "accumulations", counts)
    object.__setattr__(kept, "events", ())
    return kept
