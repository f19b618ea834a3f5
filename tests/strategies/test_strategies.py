"""What each strategy shrinks to, what it refuses, and what it reaches."""

import ast
import itertools
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from random import Random
from typing import Any

import pytest
from hypothesis import HealthCheck, Phase, find, given, seed, settings
from hypothesis import strategies as st
from hypothesis.errors import InvalidArgument

import strategies
from strategies import (
    accumulations,
    bucket_caps,
    events,
    launches,
    meshes,
    parameter_lists,
    parameters,
    placements,
    readiness_orders,
    scenarios,
    shapes,
    usages,
)
from strategies.reproducibility import blind_to_local_code
from syncverify.coverage import Coverage, features
from syncverify.declared import Space
from syncverify.features import ALL_BEYOND, BEYOND
from syncverify.layout import local_shape
from syncverify.scenario import MeshSpec, ParameterSpec, Scenario
from syncverify.subject import Capabilities, resolve
from syncverify.vocabulary import PLAIN

GRID = MeshSpec((2, 2), ("dp", "tp"))
LOCAL = Capabilities(
    reduction="mean", tensors="local", separate_grad_dtype=False, needs_data=True
)
PLAIN_STEPS = Capabilities(varying_accumulations=True, outside=ALL_BEYOND)
SIMPLEST = ParameterSpec("p0", (), ("R",))


def minimal(
    strategy: st.SearchStrategy[Any], wanted: Callable[[Any], bool] = lambda _: True
) -> Any:
    """Find and shrink, the same way every time."""
    return find(
        strategy,
        wanted,
        settings=settings(
            max_examples=5000, database=None, suppress_health_check=list(HealthCheck)
        ),
        random=Random(0),
    )


# Shrinking ends at what the docstrings promise.


@pytest.mark.parametrize(
    ("strategy", "smallest"),
    [
        (meshes(), MeshSpec((1,), ("dp",))),
        (placements(GRID, num_dims=3), ("R", "R")),
        (shapes(), ()),
        (parameters(GRID), ParameterSpec("", (), ("R", "R"))),
        (parameter_lists(GRID), (ParameterSpec("p0", (), ("R", "R")),)),
        (accumulations(), (1,)),
        (accumulations(varying=False), (1,)),
        (bucket_caps(), 2**20),
        (events(3), ()),
        (launches(), "current_stream"),
        (readiness_orders(), "same"),
        (usages((SIMPLEST,)), (SIMPLEST,)),
        (scenarios(), Scenario(MeshSpec((1,), ("dp",)), (SIMPLEST,), (1,), 2**20)),
    ],
    ids=[
        "meshes", "placements", "shapes", "parameters", "parameter_lists",
        "accumulations", "accumulations, all alike", "bucket_caps", "events", "launches",
        "readiness_orders", "usages", "scenarios",
    ],
)  # fmt: skip
def test_smallest_example(strategy: st.SearchStrategy[Any], smallest: object) -> None:
    assert minimal(strategy) == smallest


@pytest.mark.parametrize(
    ("strategy", "wanted", "smallest"),
    [
        (meshes(), lambda m: m.num_ranks > 1, MeshSpec((2,), ("dp",))),
        (meshes(), lambda m: len(m.shape) == 2, MeshSpec((1, 1), ("dp", "tp"))),
        (meshes(), lambda m: min(m.shape) > 1 < len(m.shape), GRID),
        (meshes(max_ranks=8), lambda m: m.num_ranks > 6, MeshSpec((7,), ("dp",))),
        (placements(GRID, num_dims=2), lambda p: "S1" in (p or ()), ("R", "S1")),
        (accumulations(), lambda a: len(a) == 2, (1, 1)),
        (accumulations(), lambda a: len(set(a)) > 1, (1, 2)),
        (accumulations(varying=False), lambda a: max(a) > 2, (3,)),
        (bucket_caps(), lambda cap: cap < 2**20, 1),
        (events(2), lambda e: "rebind" in e, ("rebind", "plain")),
        (events(2), lambda e: e[1:] == ("tail",), ("plain", "tail")),
        (launches(), lambda word: "side" in word, "step_on_side_stream"),
        (
            usages((SIMPLEST, replace(SIMPLEST, name="p1"))),
            lambda specs: any(spec.used != "always" for spec in specs),
            (replace(SIMPLEST, used="never"), replace(SIMPLEST, name="p1")),
        ),
    ],
)
def test_smallest_example_with_a_feature(
    strategy: st.SearchStrategy[Any], wanted: Callable[[Any], bool], smallest: object
) -> None:
    assert minimal(strategy, wanted) == smallest


CUBE = MeshSpec((1, 1, 1), ("dp", "tp", "ep"))
EVERY_PLACEMENT = {"sub_meshes": True, "strided": True, "partial": True}
SMALLEST_OF_RARE_KIND = {
    "3 axes": (
        meshes(max_axes=3, unnamed=True),
        lambda m: len(m.shape) == 3 and m.axis_names,
        CUBE,
    ),
    "unnamed": (
        meshes(max_axes=3, unnamed=True), lambda m: not m.axis_names, MeshSpec((1,), ())
    ),
    "sub_mesh": (
        placements(GRID, num_dims=2, **EVERY_PLACEMENT), lambda p: "-" in (p or ()),
        ("R", "-"),
    ),
    "strided": (
        placements(GRID, num_dims=2, **EVERY_PLACEMENT), lambda p: "_S0" in (p or ()),
        ("_S0", "S0"),
    ),
    "partial": (
        placements(GRID, num_dims=2, **EVERY_PLACEMENT), lambda p: "P" in (p or ()),
        ("R", "P"),
    ),
    "4 dims": (
        shapes(four_dims=True, empty=True), lambda s: len(s) == 4 and 0 not in s,
        (1, 1, 1, 1),
    ),
    "empty": (shapes(four_dims=True, empty=True), lambda s: 0 in s, (0,)),
}  # fmt: skip


@pytest.mark.parametrize(
    ("strategy", "wanted", "smallest"),
    SMALLEST_OF_RARE_KIND.values(),
    ids=SMALLEST_OF_RARE_KIND.keys(),
)
def test_smallest_of_a_rare_kind(
    strategy: st.SearchStrategy[Any], wanted: Callable[[Any], bool], smallest: object
) -> None:
    assert minimal(strategy, wanted) == smallest


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("dtype", "float64"),
        ("num_listed", 2),
        ("memory_format", "transposed"),
        ("memory_format", "channels_last"),
    ],
)
def test_smallest_parameter_of_a_rare_kind_is_otherwise_plain(
    field: str, value: object
) -> None:
    found = minimal(parameters(GRID), lambda spec: getattr(spec, field) == value)
    # Formats need dims, and those of the smallest shape are not always found.
    plain = ParameterSpec("", found.global_shape, ("R", "R"))
    assert found == replace(plain, **{field: value})


def test_smallest_frozen_parameter_is_otherwise_plain() -> None:
    found = minimal(parameters(GRID), lambda spec: not spec.requires_grad)
    assert found == ParameterSpec("", (), ("R", "R"), requires_grad=False)


# Impossible arguments.


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (
            lambda: meshes(max_ranks=0), "expected max_ranks >= 1, got max_ranks=0",
        ),
        (
            lambda: meshes(max_axes=4), "expected max_axes of 1 to 3, got max_axes=4",
        ),
        (
            lambda: parameter_lists(GRID, min_size=0),
            "expected 1 <= min_size=0 <= max_size=8",
        ),
        (
            lambda: parameter_lists(GRID, min_size=3, max_size=2),
            "expected 1 <= min_size=3 <= max_size=2",
        ),
        (
            lambda: accumulations(max_steps=0),
            "expected max_steps=0 and max_accumulations=4 of at least 1",
        ),
        (
            lambda: minimal(events(0)), "expected num_steps=0 of at least 1",
        ),
        (
            lambda: accumulations(max_accumulations=-1),
            "expected max_steps=3 and max_accumulations=-1 of at least 1",
        ),
    ],
)  # fmt: skip
def test_impossible_arguments_are_refused(
    make: Callable[[], object], message: str
) -> None:
    with pytest.raises(InvalidArgument) as caught:
        make()
    assert str(caught.value) == message


def test_impossible_number_of_ranks_of_a_scenario_is_refused() -> None:
    with pytest.raises(InvalidArgument) as caught:
        minimal(scenarios(max_ranks=0))
    assert str(caught.value) == "expected max_ranks >= 1, got max_ranks=0"


# What is drawn is legal.


@given(scenarios(max_ranks=6))
def test_names_count_up_and_one_parameter_is_trainable(scenario: Scenario) -> None:
    names = [spec.name for spec in scenario.parameters]
    if scenario.module == PLAIN:  # modules have names of their own
        assert names == [f"p{index}" for index in range(len(names))]
    assert any(spec.requires_grad for spec in scenario.parameters)
    assert scenario.mesh.num_ranks <= 6


@given(scenarios(capabilities=LOCAL))
def test_local_tensors_are_replicated_everywhere(scenario: Scenario) -> None:
    for spec in scenario.parameters:
        assert set(spec.placements or "?") == {"R"}
        assert spec.grad_dtype is None
    assert len(set(scenario.accumulations)) == 1


@given(scenarios(max_ranks=1))
def test_one_rank_is_one_rank(scenario: Scenario) -> None:
    assert scenario.mesh.num_ranks == 1


@given(st.data())
def test_scalars_are_never_sharded(data: st.DataObject) -> None:
    assert data.draw(placements(GRID, num_dims=0)) in {("R", "R"), None}


# Everything that matters is within reach.


def local_numels(scenario: Scenario, spec: ParameterSpec) -> set[int]:
    shapes_of_ranks = [
        local_shape(scenario.mesh, spec, rank)
        for rank in range(scenario.mesh.num_ranks)
    ]
    numels = set()
    for shape in shapes_of_ranks:
        numel = 1
        for size in shape:
            numel *= size
        numels.add(numel)
    return numels


def equal_sized_neighbours(scenario: Scenario) -> bool:
    """Two trainable parameters of a group that a check of sizes cannot tell apart."""
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
    "2 x 2 mesh": lambda s: s.mesh.shape == (2, 2),
    "axis of size 1": lambda s: 1 in s.mesh.shape and s.mesh.num_ranks > 1,
    "three ranks": lambda s: s.mesh.num_ranks == 3,
    "frozen": lambda s: any(not p.requires_grad for p in s.parameters),
    "plain": lambda s: any(p.placements is None for p in s.parameters),
    "two groups": lambda s: len(s.groups) == 2,
    "varying accumulations": lambda s: len(set(s.accumulations)) > 1,
    "cap that splits": lambda s: ("buckets", "cap splits") in set(features(s)),
    "equal-sized parameters": equal_sized_neighbours,
    "one dim on both axes": lambda s: any(
        p.placements and p.placements[0] == p.placements[-1] != "R"
        for p in s.parameters
        if len(s.mesh.shape) == 2 and min(s.mesh.shape) > 1
    ),
    "both axes reduced": lambda s: (
        min(s.mesh.shape) > 1 < len(s.mesh.shape)
        and any(p.placements == ("R", "R") for p in s.parameters)
    ),
    "one axis reduced, one sharded": lambda s: any(
        p.placements and "R" in p.placements and {"S0", "S1"} & {*p.placements}
        for p in s.parameters
        if min(s.mesh.shape) > 1
    ),
    "own gradient dtype": lambda s: any(p.grad_dtype for p in s.parameters),
    "one gradient dtype for two dtypes": lambda s: (
        len({p.dtype for p in s.parameters if p.effective_grad_dtype == "float32"}) > 1
    ),
    "many parameters": lambda s: len(s.parameters) >= 6,
    "three steps of several micro-batches": lambda s: (
        len(s.accumulations) == 3 and min(s.accumulations) > 1
    ),
}


def drawn(
    capabilities: Capabilities, *, num_searches: int = 3, num_scenarios: int = 200
) -> list[Scenario]:
    """Draw what some default runs of `syncverify run` would play."""
    listed: list[Scenario] = []
    for number in range(num_searches):

        @seed(number)
        @settings(
            max_examples=num_scenarios, phases=[Phase.generate], derandomize=False
        )
        @given(scenarios(capabilities=capabilities))
        def draw(scenario: Scenario) -> None:
            listed.append(scenario)

        with blind_to_local_code():  # as a search does
            draw()
    return listed


@pytest.fixture(scope="module")
def default_searches() -> list[Scenario]:
    return drawn(PLAIN_STEPS)


@pytest.mark.parametrize("wanted", DISCOVERIES.values(), ids=DISCOVERIES.keys())
def test_feature_is_within_reach_of_a_default_search(
    default_searches: list[Scenario], wanted: Callable[[Scenario], bool]
) -> None:
    assert sum(map(wanted, default_searches)) >= 6


def never_met(listed: list[Scenario], capabilities: Capabilities) -> list[str]:
    coverage = Coverage(Space(capabilities, 4))
    for scenario in listed:
        coverage.add(scenario)
    return ["=".join(feature) for feature in coverage.missing_values()]


def test_default_search_leaves_no_feature_out(default_searches: list[Scenario]) -> None:
    assert never_met(default_searches, PLAIN_STEPS) == []


@pytest.mark.slow
def test_capabilities_leave_out_what_they_rule_out_and_no_more() -> None:
    able = resolve("ddp").capabilities
    listed = drawn(able)
    assert never_met(listed, able) == []
    assert {name.partition("=")[2] for name in never_met(listed, PLAIN_STEPS)} == {
        "sharded", "uneven or empty shard", "plain", "own gradient dtype",
        *(["varying"] if not able.varying_accumulations else []),
    }  # fmt: skip


def test_public_names() -> None:
    assert {getattr(strategies, name) for name in strategies.__all__} >= {
        scenarios, meshes, parameters, placements, shapes, accumulations, bucket_caps,
    }  # fmt: skip


@pytest.mark.slow
def test_words_meet_in_pairs() -> None:
    """One by one, words that are rare would hardly ever meet.

    As many scenarios as a thorough search has, where there is time for that:
    pytest tests/strategies/test_strategies.py --hypothesis-profile=nightly
    """
    is_nightly = settings().max_examples >= 1000
    geometry = {"mesh", "placement", "shape", "dtype", "listed", "memory_format"}
    able = Capabilities(varying_accumulations=True, outside=frozenset(geometry))
    coverage = Coverage(Space(able, 4))
    for scenario in drawn(
        able, num_searches=1, num_scenarios=2000 if is_nightly else 300
    ):
        coverage.add(scenario)
    num_pairs = sum(1 for _ in coverage.space.pairs())
    missing = len(coverage.missing_pairs()) / num_pairs
    assert missing <= (0.05 if is_nightly else 0.5)
    assert not is_nightly or coverage.missing_values() == []


def throws_draws_away(source: str) -> bool:
    calls = [
        node.func for node in ast.walk(ast.parse(source)) if isinstance(node, ast.Call)
    ]
    named = {call.id for call in calls if isinstance(call, ast.Name)}
    methods = {call.attr for call in calls if isinstance(call, ast.Attribute)}
    return bool(
        named & {"assume", "reject"} or methods & {"filter", "assume", "reject"}
    )


def test_scenarios_are_made_and_not_filtered() -> None:
    """Hypothesis discards what overruns when it mutates examples; we discard nothing."""
    files = Path(strategies.__file__).parent.glob("*.py")
    assert [f.name for f in files if throws_draws_away(f.read_text())] == []
    assert throws_draws_away("st.integers().filter(bool)")
    assert throws_draws_away("assume(x)")


@given(scenarios())
def test_no_scenario_has_what_makes_no_sense_together(scenario: Scenario) -> None:
    space = Space(Capabilities(varying_accumulations=True), 4)
    met = sorted(set(features(scenario)))
    declared = space.values()
    assert [name for topic, name in met if name not in declared[topic]] == []
    pairs = itertools.combinations(met, 2)
    assert [
        pair for pair in pairs if pair[0][0] != pair[1][0] and space.why_not(*pair)
    ] == []


def test_a_pair_that_makes_no_sense_is_not_crowded_in(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    apart = itertools.product(BEYOND["launch"], BEYOND["event"])
    table = {
        frozenset((f"launch={launch}", f"event={event}")): "for this test"
        for launch, event in apart
    }
    monkeypatch.setattr("strategies.crowds.NEVER_TOGETHER", table)
    able = Capabilities(outside=ALL_BEYOND - {"launch", "event"})
    listed = drawn(able, num_searches=1)
    assert any(s.launch != "current_stream" for s in listed)
    assert any(s.events for s in listed)
    assert not any(s.events and s.launch != "current_stream" for s in listed)
