"""A scenario is a value with a documented JSON form; a malformed one is refused."""

import json
from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import given
from hypothesis.vendor.pretty import pretty

from syncverify.errors import ScenarioFormatError
from syncverify.scenario.scenario import Scenario
from syncverify.scenario.specs import MeshSpec, ParameterSpec
from syncverify.strategies import scenarios

WEIGHT = ParameterSpec("w", (4, 3), ("R", "S0"))
BIAS = ParameterSpec("b", (3,), None, "bfloat16", "float32", group=1)
SCENARIO = Scenario(MeshSpec((2, 2), ("dp", "tp")), (WEIGHT, BIAS), (2, 1), 64)


@pytest.mark.long
@given(scenarios(max_ranks=8))
def test_json_and_repr_are_read_back(scenario: Scenario) -> None:
    text = json.dumps(scenario.to_json(), allow_nan=False)
    assert Scenario.from_json(json.loads(text)) == scenario
    names = {each.__name__: each for each in (Scenario, MeshSpec, ParameterSpec)}
    assert eval(repr(scenario), {**names}) == scenario  # our own text
    assert eval(pretty(scenario), {**names}) == scenario


def test_json_has_the_documented_format() -> None:
    """Recorded reports outlive releases: a change here needs a new version."""
    assert SCENARIO.to_json() == {
        "version": 2,
        "mesh": {"shape": [2, 2], "axis_names": ["dp", "tp"]},
        "parameters": [
            {"name": "w", "global_shape": [4, 3], "placements": ["R", "S0"], "dtype": "float32",
            "grad_dtype": None, "requires_grad": True, "group": 0},
            {"name": "b", "global_shape": [3], "placements": None, "dtype": "bfloat16",
            "grad_dtype": "float32", "requires_grad": True, "group": 1}],
        "accumulations": [2, 1],
        "bucket_cap_bytes": 64,
    }  # fmt: skip


def test_groups_keep_registration_order_and_skip_unused_indices() -> None:
    specs = [
        ParameterSpec(name, (), None, group=g)
        for name, g in zip("abc", (5, 0, 5), strict=True)
    ]
    scenario = Scenario(MeshSpec((1,), ("dp",)), tuple(specs), (1,), 1)
    assert [[s.name for s in group] for group in scenario.groups] == [["b"], ["a", "c"]]


@pytest.mark.parametrize("version", [1, "2", None])
def test_other_version_is_refused(version: object) -> None:
    with pytest.raises(ScenarioFormatError) as caught:
        Scenario.from_json({**SCENARIO.to_json(), "version": version})
    assert str(caught.value) == (
        f"scenario version {version!r} is not supported "
        "(this syncverify reads version 2)"
    )


@pytest.mark.parametrize("data", [None, "sv1", {"mesh": {}}])
def test_data_without_a_version_is_refused(data: object) -> None:
    with pytest.raises(ScenarioFormatError, match=r"^expected a scenario object with"):
        Scenario.from_json(data)


def edit(*path: str | int, to: object) -> Callable[[dict[str, Any]], None]:
    def apply(data: Any) -> None:
        for key in path[:-1]:
            data = data[key]
        data[path[-1]] = to

    return apply


def remove(*path: str | int) -> Callable[[dict[str, Any]], None]:
    def apply(data: Any) -> None:
        for key in path[:-1]:
            data = data[key]
        del data[path[-1]]

    return apply


P0 = ("parameters", 0)
MALFORMED = {
    "no mesh": (remove("mesh"), "KeyError('mesh')"),
    "axis without a name": (edit("mesh", "axis_names", to=["dp"]),
        "each mesh axis has a name of its own, or none has a name"),
    "no micro-batch": (edit("accumulations", to=[0]), "accumulations are >= 1"),
    "accumulations is a number": (edit("accumulations", to=2),
        '''TypeError("'int' object is not iterable")'''),
    "no parameters": (edit("parameters", to=[]), "at least one parameter is trainable"),
    "same name twice": (edit(*P0, "name", to="b"), "parameter names are unique"),
    "unknown dtype": (edit(*P0, "dtype", to="int8"),
        "dtype of 'w' is one of ('float32', 'bfloat16', 'float16', 'float64')"),
    "negative size": (edit(*P0, "global_shape", to=[4, -3]), "sizes are >= 0"),
    "placement of one axis only": (
        edit(*P0, "placements", to=["R"]),
        "'w' has one placement of ['-', 'P', 'R', 'S0', 'S1', '_S0', '_S1'] per mesh axis, not ('R',)",
    ),
    "absent from every axis": (edit(*P0, "placements", to=["-", "-"]),
        "'w' lives on some axis of a mesh with names: others have no sub-meshes"),
    "strided, and no later axis cuts first": (edit(*P0, "placements", to=["_S0", "R"]),
        "an axis after axis 0 cuts dim 0 of 'w' first"),
    "strided and uneven": (edit(*P0, "placements", to=["_S1", "S1"]),
        "dim 1 of 'w' is strided and divides by 4"),
    "transposed vector": (edit("parameters", 1, "memory_format", to="transposed"),
        "'b' has 2 dims or more, to be transposed"),
}  # fmt: skip


@pytest.mark.parametrize(("change", "words"), MALFORMED.values(), ids=MALFORMED.keys())
def test_malformed_is_refused(
    change: Callable[[dict[str, Any]], None], words: str
) -> None:
    data = SCENARIO.to_json()
    change(data)
    with pytest.raises(ScenarioFormatError) as caught:
        Scenario.from_json(data)
    assert str(caught.value) == f"malformed scenario: {words}"
