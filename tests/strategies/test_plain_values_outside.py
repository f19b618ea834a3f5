"""A contract leaves out values of plain training steps, and no scenario has one."""

import random

import pytest
from hypothesis import Phase, given, settings
from hypothesis import strategies as st

from syncverify.errors import UsageError
from syncverify.scenario.contract import Capabilities
from syncverify.scenario.coverage import Coverage
from syncverify.scenario.feature_table import ALL_OPTIONAL_TOPICS, FEATURES, OPTIONAL
from syncverify.scenario.features import features_of, features_outside
from syncverify.scenario.scenario import Scenario
from syncverify.scenario.space import Space
from syncverify.search.drawing import Drawing
from syncverify.search.missing_values import scenarios_of_missing_values
from syncverify.search.smaller_scenarios import simpler_scenarios
from syncverify.strategies import scenarios

MAX_RANKS = 4
MORE_RANKS = ("5", "6", "7", "8")  # one scenario of `size=many ranks` has one of them
LONG_STEPS = {"accumulations=3", "accumulations=4"}
VALUES = [
    *(f"ranks={number}" for number in range(1, MAX_RANKS + 1)),
    *(str(feature) for feature in FEATURES if feature not in OPTIONAL),
]


def contract(*outside: str, beyond: bool = False) -> Capabilities:
    """Return a contract of plain steps; with `beyond`, of all others as well."""
    features = ALL_OPTIONAL_TOPICS if beyond else frozenset()
    return Capabilities(
        varying_accumulations=True, features=features, outside=frozenset(outside)
    )


def leaves_scenarios(capabilities: Capabilities) -> bool:
    try:
        Space(capabilities, MAX_RANKS).require_scenarios()
    except UsageError:
        return False
    return True


def names_of(scenario: Scenario) -> set[str]:
    return {f"{topic}={name}" for topic, name in features_of(scenario)}


def drawn(capabilities: Capabilities, num_scenarios: int) -> list[Scenario]:
    listed: list[Scenario] = []
    drawing = Drawing(capabilities, MAX_RANKS, num_scenarios, random_seed=0)
    drawing.for_each(lambda scenario, _: listed.append(scenario), Phase.generate)
    return listed


contracts = st.builds(
    lambda outside, beyond: contract(*outside, beyond=beyond),
    st.sets(st.sampled_from(VALUES), max_size=8),
    st.booleans(),
).filter(leaves_scenarios)


@pytest.mark.long
@settings(max_examples=10)
@given(contracts, st.data())
def test_no_scenario_has_a_value_that_is_left_out(
    capabilities: Capabilities, data: st.DataObject
) -> None:
    drawn_one = data.draw(
        scenarios(max_ranks=MAX_RANKS, capabilities=capabilities), label="scenario"
    )
    assert features_outside(drawn_one, capabilities) == []
    for simpler in simpler_scenarios(drawn_one, capabilities):
        assert names_of(simpler).isdisjoint(capabilities.outside)


@pytest.mark.long
@pytest.mark.parametrize(
    "seed",
    [
        pytest.param(seed, marks=() if seed in {1, 5} else pytest.mark.nightly)
        for seed in range(12)
    ],
)
def test_all_values_that_are_left_occur(seed: int) -> None:
    chosen = random.Random(seed)
    while True:
        capabilities = contract(*chosen.sample(VALUES, chosen.randint(1, 8)))
        # Without long steps, gradients whose terms cancel out are too rare.
        has_long_steps = not capabilities.outside >= LONG_STEPS
        if has_long_steps and leaves_scenarios(capabilities):
            break
    coverage = Coverage(Space(capabilities, MAX_RANKS))
    for scenario in drawn(capabilities, 400):
        coverage.add(scenario)
    for scenario in scenarios_of_missing_values(coverage, seed):
        coverage.add(scenario)
    assert coverage.missing_values() == []
    left = coverage.space.values()
    found = {
        topic: [n for n in names if names[n] and n not in MORE_RANKS]
        for topic, names in coverage.table().items()
    }
    assert {topic: sorted(names) for topic, names in found.items()} == {
        topic: sorted(names) for topic, names in left.items()
    }


@pytest.mark.parametrize("value", VALUES)
def test_each_value_can_be_left_out_alone(value: str) -> None:
    capabilities = contract(value)
    assert leaves_scenarios(capabilities)
    topic, _, name = value.partition("=")
    assert name not in Space(capabilities, MAX_RANKS).values()[topic]
    assert name in Space(contract(), MAX_RANKS).values()[topic] or name == "over 3 axes"


@pytest.mark.parametrize(
    ("outside", "topic", "gone"),
    [
        ({"mesh=2 axes"}, "reduction", {"over 2 axes"}),
        ({"mesh=axis of size 1"}, "ranks", {"1"}),
        ({"steps=2", "steps=3"}, "accumulations", {"varying"}),
        ({"reduction=over 1 axis"}, "ranks", set()),
    ],
)  # fmt: skip
def test_values_that_need_one_left_out_are_gone_as_well(
    outside: set[str], topic: str, gone: set[str]
) -> None:
    everything = Space(contract(), MAX_RANKS).values()[topic]
    left = Space(contract(*outside), MAX_RANKS).values()[topic]
    named = {each.partition("=")[2] for each in outside}
    assert set(everything) - set(left) - named == gone


def test_a_mesh_that_nothing_fits_on_is_not_drawn() -> None:
    """Each parameter is reduced, so one rank and a mesh without replicas are left out."""
    capabilities = contract(
        "reduction=none", "parameters=replicated", "mesh=axis of size 1"
    )
    assert Space(capabilities, MAX_RANKS).values()["ranks"] == ["4"]
    assert {scenario.mesh.shape for scenario in drawn(capabilities, 20)} == {(2, 2)}


@pytest.mark.parametrize(
    ("outside", "topic"),
    [
        ({f"ranks={number}" for number in range(1, 5)}, "ranks"),
        ({"dtype=float32", "dtype=bfloat16", "dtype=float16"}, "dtype"),
        ({"steps=1", "steps=2", "steps=3"}, "steps"),
    ],
)
def test_a_contract_without_scenarios_is_refused(outside: set[str], topic: str) -> None:
    with pytest.raises(UsageError) as caught:
        Drawing(contract(*outside), MAX_RANKS, 10, random_seed=0)
    assert str(caught.value) == (
        f"expected a contract that leaves some {topic!r} on up to 4 ranks; its "
        f"capabilities leave out each one: take a value of {topic!r} out of `outside`"
    )
