"""Each strategy: minimal examples, refused arguments, drawn values."""

from collections.abc import Callable
from dataclasses import replace
from random import Random
from typing import Any

import pytest
from hypothesis import HealthCheck, find, given, settings
from hypothesis import strategies as st
from hypothesis.errors import InvalidArgument

from syncverify.scenario.contract import Capabilities
from syncverify.scenario.scenario import Scenario
from syncverify.scenario.specs import MeshSpec, ParameterSpec
from syncverify.search.isolation import without_local_constants
from syncverify.strategies import (
    accumulations,
    bucket_caps,
    caller_streams,
    meshes,
    parameter_lists,
    parameters,
    placements,
    readiness_orders,
    scenarios,
    shapes,
    step_events,
    used_by,
)

GRID = MeshSpec((2, 2), ("dp", "tp"))
LOCAL = Capabilities(reduction="mean", tensors="local", needs_data=True)
SIMPLEST = ParameterSpec("p0", (), ("R",))


def minimal(
    strategy: st.SearchStrategy[Any], wanted: Callable[[Any], bool] = lambda _: True
) -> Any:
    """Find and shrink, the same way every time."""
    configured = settings(
        max_examples=5000, database=None, suppress_health_check=list(HealthCheck)
    )
    with without_local_constants():  # as a search does
        return find(strategy, wanted, settings=configured, random=Random(0))


def always(_: object) -> bool:
    return True


PAIR = (SIMPLEST, replace(SIMPLEST, name="p1"))
RARE = {"sub_meshes": True, "strided": True, "partial": True}
# Strategy, what is wanted of the example, and the example that the docstring promises.
SMALLEST = {
    "meshes": (meshes(), always, MeshSpec((1,), ("dp",))),
    "meshes, 2 ranks": (meshes(), lambda m: m.num_ranks > 1, MeshSpec((2,), ("dp",))),
    "meshes, 2 axes": (meshes(), lambda m: min(m.shape) > 1 < len(m.shape), GRID),
    "meshes, 3 axes": (
        meshes(max_axes=3, unnamed=True), lambda m: len(m.shape) == 3 and m.axis_names,
        MeshSpec((1, 1, 1), ("dp", "tp", "ep")),
    ),
    "placements": (placements(GRID, num_dims=3), always, ("R", "R")),
    "placements, S1": (
        placements(GRID, num_dims=2), lambda p: "S1" in (p or ()), ("R", "S1"),
    ),
    "placements, sub-mesh": (
        placements(GRID, num_dims=2, **RARE), lambda p: "-" in (p or ()), ("R", "-"),
    ),
    "placements, strided": (
        placements(GRID, num_dims=2, **RARE), lambda p: "_S0" in (p or ()), ("_S0", "S0"),
    ),
    "shapes": (shapes(), always, ()),
    "shapes, 4 dims": (
        shapes(four_dims=True, empty=True), lambda s: len(s) == 4 and 0 not in s,
        (1, 1, 1, 1),
    ),
    "parameters": (parameters(GRID), always, ParameterSpec("", (), ("R", "R"))),
    "accumulations": (accumulations(), always, (1,)),
    "accumulations, two": (accumulations(), lambda a: len(set(a)) > 1, (1, 2)),
    "bucket_caps": (bucket_caps(), always, 2**20),
    "bucket_caps, small": (bucket_caps(), lambda cap: cap < 2**20, 1),
    "step_events": (step_events(3), always, ()),
    "step_events, rebind": (
        step_events(2), lambda e: "rebind" in e, ("rebind", "plain"),
    ),
    "caller_streams": (caller_streams(), always, "current_stream"),
    "caller_streams, side": (
        caller_streams(), lambda word: "side" in word, "step_on_side_stream",
    ),
    "readiness_orders": (readiness_orders(), always, "same"),
    "used_by": (used_by((SIMPLEST,)), always, (SIMPLEST,)),
    "used_by, unused": (
        used_by(PAIR), lambda specs: any(spec.used != "always" for spec in specs),
        (replace(SIMPLEST, used="never"), PAIR[1]),
    ),
    "parameter_lists": (
        parameter_lists(GRID), always, (ParameterSpec("p0", (), ("R", "R")),),
    ),
    "scenarios": (
        scenarios(), always, Scenario(MeshSpec((1,), ("dp",)), (SIMPLEST,), (1,), 2**20),
    ),
}  # fmt: skip
LONG = ("parameter_lists", "scenarios")


@pytest.mark.slow
@pytest.mark.parametrize(
    "case",
    [
        pytest.param(each, marks=[pytest.mark.long] * (each in LONG))
        for each in SMALLEST
    ],
)
def test_smallest_example(case: str) -> None:
    strategy, wanted, smallest = SMALLEST[case]
    assert minimal(strategy, wanted) == smallest


@pytest.mark.slow
@pytest.mark.parametrize(
    ("field", "value"),
    [("requires_grad", False), ("num_listed", 2), ("memory_format", "channels_last")],
)
def test_smallest_parameter_of_a_rare_kind_is_otherwise_plain(
    field: str, value: object
) -> None:
    found = minimal(parameters(GRID), lambda spec: getattr(spec, field) == value)
    # Formats need dims, and those of the smallest shape are not always found.
    plain = ParameterSpec("", found.global_shape, ("R", "R"))
    assert found == replace(plain, **{field: value})


# Impossible arguments are refused.


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
            lambda: parameter_lists(GRID, min_size=3, max_size=2),
            "expected 1 <= min_size=3 <= max_size=2",
        ),
        (
            lambda: accumulations(max_steps=0),
            "expected max_steps=0 and max_accumulations=4 of at least 1",
        ),
        (
            lambda: minimal(step_events(0)), "expected num_steps=0 of at least 1",
        ),
    ],
)  # fmt: skip
def test_impossible_arguments_are_refused(
    make: Callable[[], object], message: str
) -> None:
    with pytest.raises(InvalidArgument) as caught:
        make()
    assert str(caught.value) == message


# Drawn values are legal.


@pytest.mark.long
@given(scenarios(capabilities=LOCAL))
def test_local_tensors_are_replicated_everywhere(scenario: Scenario) -> None:
    for spec in scenario.parameters:
        assert set(spec.placements or "?") == {"R"}
        assert spec.grad_dtype is None
    assert len(set(scenario.accumulations)) == 1


@given(st.data())
def test_scalars_are_never_sharded(data: st.DataObject) -> None:
    assert data.draw(placements(GRID, num_dims=0)) in {("R", "R"), None}
