"""Candidates leave out a thing of a scenario; parts are the smallest first. All are legal."""

from dataclasses import replace

import pytest
from hypothesis import given, settings

from syncverify.playing.program.modules.layers import module_parameters
from syncverify.scenario.contract import EVERYTHING, PLAIN_CONTRACT
from syncverify.scenario.features import features_outside, optional_features, size_of
from syncverify.scenario.scenario import Scenario
from syncverify.scenario.specs import MeshSpec, ParameterSpec
from syncverify.search.smaller_scenarios import parts_of, simpler_scenarios
from syncverify.strategies import scenarios
from tests.programs import one_parameter

ANYTHING = replace(EVERYTHING, varying_accumulations=True)
UNIFORM = EVERYTHING
P0 = ParameterSpec("p0", (4,), ("R", "S0"))
P1 = ParameterSpec("p1", (4,), ("-", "R"))
TWO_AXES = Scenario(
    MeshSpec((2, 4), ("dp", "tp")), (P0, P1), (1, 3), 64, ("plain", "tail")
)
LEAST = one_parameter(1, "p0", (), cap_bytes=64)


def test_each_candidate_leaves_out_one_thing() -> None:
    found = list(simpler_scenarios(TWO_AXES, ANYTHING))
    meshes = [each.mesh.shape for each in found if each.mesh != TWO_AXES.mesh]
    assert meshes == [(4,), (1, 4), (2, 1), (2, 2), (2, 3)]
    rest = [each for each in found if each.mesh == TWO_AXES.mesh]
    names = [[spec.name for spec in each.parameters] for each in rest]
    assert names[:3] == [["p1"], ["p0"], ["p0", "p1"]]
    steps = [(each.accumulations, each.events) for each in rest[2:]]
    assert steps == [
        ((3,), ("tail",)),
        ((1,), ()),
        ((1, 1), TWO_AXES.events),
        ((1, 2), TWO_AXES.events),
        ((1, 1), TWO_AXES.events),
        ((1, 2), TWO_AXES.events),
    ]


def test_counts_stay_equal_where_the_subject_needs_that() -> None:
    equal = replace(LEAST, accumulations=(3, 3))
    counts = {each.accumulations for each in simpler_scenarios(equal, UNIFORM)}
    assert counts == {(3,), (1, 1), (2, 2)}


def test_a_real_module_keeps_its_parameters() -> None:
    mesh = TWO_AXES.mesh
    listed = module_parameters("mlp", mesh)
    trained = replace(
        TWO_AXES, parameters=listed, accumulations=(1,), events=(), module="mlp"
    )
    found = list(simpler_scenarios(trained, ANYTHING))
    shapes = [each.mesh.shape for each in found]
    assert shapes == [(4,), (1, 4), (2,), (2, 1), (2, 2), (2, 3)]
    assert [each.parameters for each in found] == [
        module_parameters("mlp", each.mesh) for each in found
    ]


@pytest.mark.long
@settings(max_examples=40)
@given(scenarios(max_ranks=8, capabilities=UNIFORM))
def test_candidates_are_smaller_and_as_legal(scenario: Scenario) -> None:
    features = {*optional_features(scenario)}
    for candidate in simpler_scenarios(scenario, UNIFORM):
        assert size_of(candidate) < size_of(scenario)
        assert {*optional_features(candidate)} <= features
        assert not features_outside(candidate, UNIFORM)


WHOLE = Scenario(
    MeshSpec((2, 3), ("dp", "tp")), (P0, replace(P0, name="p1")), (2, 2), 64
)


def test_parts_are_distinct_and_begin_with_the_least() -> None:
    first, *others = parts = [*parts_of(WHOLE, PLAIN_CONTRACT)]
    assert first.mesh == MeshSpec((1,), ("dp",))
    assert first.parameters == (ParameterSpec("p0", (4,), ("R",)),)
    assert first.accumulations == (1,)
    assert WHOLE not in others
    assert len({*parts}) == len(parts)
    assert {part.mesh.shape for part in parts} == {(1,), (2,), (3,), (2, 3)}
    assert {len(part.parameters) for part in parts} == {1, 2}
    assert {part.accumulations for part in parts} == {(1,), (2,), (1, 1), (2, 2)}


def test_words_and_events_are_left_out_first() -> None:
    scenario = replace(LEAST, events=("wait_twice",), launch="step_on_side_stream")
    first, *others = parts_of(scenario, EVERYTHING)
    assert (first.events, first.launch) == ((), "current_stream")
    assert {(part.events, part.launch) for part in others} == {
        (("wait_twice",), "current_stream"),
        ((), "step_on_side_stream"),
    }
