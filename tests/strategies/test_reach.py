"""Features that default searches reach, and pairs of features that no scenario has."""

import itertools
import math
from collections.abc import Callable
from dataclasses import replace

import pytest
from hypothesis import Phase, given

from syncverify.scenario.contract import EVERYTHING, Capabilities
from syncverify.scenario.coverage import Coverage
from syncverify.scenario.feature_table import FEATURES, NEVER_TOGETHER, PLAIN
from syncverify.scenario.features import features_of
from syncverify.scenario.layout import local_shape, reduce_axes
from syncverify.scenario.scenario import Scenario
from syncverify.scenario.space import Space
from syncverify.scenario.specs import ParameterSpec
from syncverify.search.drawing import Drawing
from syncverify.strategies import scenarios
from syncverify.strategies.last_words import scenarios_with_last_words
from tests.programs import one_parameter

PLAIN_STEPS = Capabilities(varying_accumulations=True)


def local_numels(scenario: Scenario, spec: ParameterSpec) -> set[int]:
    """Return the numbers of elements that ranks hold of a parameter."""
    return {
        math.prod(local_shape(scenario.mesh, spec, rank))
        for rank in range(scenario.mesh.num_ranks)
    }


def has_equal_sized_neighbours(scenario: Scenario) -> bool:
    """Tell whether a check of sizes cannot tell two trainable parameters of a group apart."""
    keys = [
        (spec.global_shape, spec.placements, spec.effective_grad_dtype, spec.group)
        for spec in scenario.parameters
        if spec.requires_grad and spec.global_shape
    ]
    return len(set(keys)) < len(keys)


DISCOVERIES: dict[str, Callable[[Scenario], bool]] = {
    "uneven shard": lambda s: any(
        len(local_numels(s, p)) > 1 and 0 not in local_numels(s, p)
        for p in s.parameters
    ),
    "empty shard": lambda s: any(
        0 in local_numels(s, p) and p.requires_grad for p in s.parameters
    ),
    "equal-sized parameters": has_equal_sized_neighbours,
    "one dim on both axes": lambda s: any(
        p.placements and p.placements[0] == p.placements[-1] != "R"
        for p in s.parameters
        if len(s.mesh.shape) == 2 and min(s.mesh.shape) > 1
    ),
    "one axis reduced, one sharded": lambda s: any(
        p.placements and "R" in p.placements and {"S0", "S1"} & {*p.placements}
        for p in s.parameters
        if min(s.mesh.shape) > 1
    ),
    "one bucket, other axes": lambda s: any(
        first.group == second.group
        and first.dtype == second.dtype
        and first.requires_grad
        and second.requires_grad
        and reduce_axes(s.mesh, first) != reduce_axes(s.mesh, second)
        and len(reduce_axes(s.mesh, first)) == len(reduce_axes(s.mesh, second)) == 1
        for first, second in itertools.combinations(s.parameters, 2)
    ),
    "many parameters": lambda s: len(s.parameters) >= 6,
    "three steps of several micro-batches": lambda s: (
        len(s.accumulations) == 3 and min(s.accumulations) > 1
    ),
}


def drawn(capabilities: Capabilities) -> list[Scenario]:
    """Draw the scenarios of a default run of `syncverify run`."""
    listed: list[Scenario] = []
    drawing = Drawing(capabilities, 4, 200, random_seed=0)
    drawing.for_each(lambda scenario, _: listed.append(scenario), Phase.generate)
    return listed


@pytest.fixture(scope="module")
def default_searches() -> list[Scenario]:
    return drawn(PLAIN_STEPS)


@pytest.mark.long
@pytest.mark.parametrize("wanted", DISCOVERIES.values(), ids=DISCOVERIES.keys())
def test_feature_is_within_reach_of_a_default_search(
    default_searches: list[Scenario], wanted: Callable[[Scenario], bool]
) -> None:
    assert sum(map(wanted, default_searches)) >= 2


def never_met(listed: list[Scenario], capabilities: Capabilities) -> list[str]:
    coverage = Coverage(Space(capabilities, 4))
    for scenario in listed:
        coverage.add(scenario)
    # A search that has met none of those that stand alone ends with one of each.
    missing = coverage.missing_values()
    return [
        str(each)
        for each in missing
        if each not in FEATURES or not FEATURES[each].is_alone
    ]


# Slow, as the tests that share the searches: beside them, and in one process with them.
@pytest.mark.long
def test_default_search_leaves_no_feature_out(default_searches: list[Scenario]) -> None:
    assert never_met(default_searches, PLAIN_STEPS) == []


@pytest.mark.long
def test_capabilities_leave_out_what_they_rule_out_and_no_more() -> None:
    capabilities = Capabilities(tensors="local")
    listed = drawn(capabilities)
    assert never_met(listed, capabilities) == []
    assert {name.partition("=")[2] for name in never_met(listed, PLAIN_STEPS)} == {
        "sharded",
        "uneven or empty shard",
        "ordinary",
        "varying",
    }


@pytest.mark.long
@given(scenarios())
def test_scenarios_are_legal_and_have_no_pair_that_is_never_together(
    scenario: Scenario,
) -> None:
    names = [spec.name for spec in scenario.parameters]
    if scenario.module == PLAIN:  # a module names its parameters itself
        assert names == [f"p{index}" for index in range(len(names))]
    assert any(spec.requires_grad for spec in scenario.parameters)
    space = Space(replace(EVERYTHING, varying_accumulations=True), 4)
    met = sorted(set(features_of(scenario)))
    declared = space.values()
    # `size=many ranks` has more ranks than the largest usual world.
    has_usual_world = scenario.mesh.num_ranks <= 4
    of_usual_worlds = [each for each in met if each.topic != "ranks"]
    assert [each for each in of_usual_worlds if each[1] not in declared[each[0]]] == []
    pairs = itertools.combinations(met if has_usual_world else of_usual_worlds, 2)
    assert [
        pair for pair in pairs if pair[0][0] != pair[1][0] and space.why_not(*pair)
    ] == []
    assert not [pair for pair in NEVER_TOGETHER if pair <= {*met}]
    assert not [each for each in met if each in FEATURES and FEATURES[each].rare]


@given(
    scenarios_with_last_words(
        one_parameter(4, "p0", ()), max_ranks=4, capabilities=EVERYTHING
    )
)
def test_a_last_word_makes_no_pair_that_is_never_together(scenario: Scenario) -> None:
    met = {*features_of(scenario)}
    assert not [pair for pair in NEVER_TOGETHER if pair <= met]
