"""Words, modules and large numbers: drawn if a contract covers them, and shrunk to plain ones."""

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.errors import NoSuchExample

from syncverify.playing.program.modules import module_parameters
from syncverify.scenario.contract import Capabilities
from syncverify.scenario.feature_table import FEATURES, OPTIONAL, PLAIN
from syncverify.scenario.scenario import Scenario
from syncverify.scenario.specs import MeshSpec, ParameterSpec
from syncverify.strategies import (
    backwards,
    module_parameter_lists,
    modules,
    scenarios,
    uses,
)
from syncverify.strategies.enlarged_scenarios import _with_elements
from tests.strategies.test_strategies import GRID, LOCAL, minimal

PARAMETERS = tuple(ParameterSpec(f"p{i}", (2,), ("R",)) for i in range(4))
WORDS = [w for t, w in OPTIONAL if t == "backward" and not FEATURES[t, w].rare]
PAIR = MeshSpec((2,), ("dp",))
ONLY_GPT = Capabilities(features=frozenset({"module=gpt"}))


def is_drawn(strategy: st.SearchStrategy[Any], wanted: Any) -> bool:
    """Tell whether a strategy draws a value, on the same seed every time."""
    try:
        return bool(minimal(strategy, wanted))
    except NoSuchExample:
        return False


@pytest.mark.parametrize("word", WORDS)
def test_every_backward_that_is_not_rare_is_drawn(word: str) -> None:
    assert minimal(backwards(), lambda drawn: drawn == word) == word


def test_uses_shrink_to_one_parameter_with_another_use() -> None:
    found = minimal(
        uses(PARAMETERS), lambda specs: any(spec.use == "hessian" for spec in specs)
    )
    assert sorted(spec.use for spec in found) == ["hessian", PLAIN, PLAIN, PLAIN]


def test_words_outside_of_the_contract_are_not_drawn() -> None:
    plain = {"capabilities": Capabilities()}
    assert not is_drawn(backwards(**plain), lambda word: word != PLAIN)
    assert not is_drawn(uses(PARAMETERS, **plain), lambda specs: specs != PARAMETERS)


def test_the_smallest_module_is_the_perceptron_and_lists_what_it_has() -> None:
    assert minimal(backwards()) == PLAIN
    assert minimal(modules(PAIR)) == PLAIN
    assert minimal(modules(PAIR), lambda name: name != PLAIN) == "mlp"
    smallest = minimal(module_parameter_lists("gpt", PAIR))
    assert smallest == module_parameters("gpt", PAIR)


@pytest.mark.nightly
def test_smallest_scenario_with_a_module_is_otherwise_plain() -> None:
    found = minimal(scenarios(capabilities=ONLY_GPT), lambda s: s.module == "gpt")
    alone = MeshSpec((1,), ("dp",))
    listed = module_parameters("gpt", alone)
    assert found == Scenario(alone, listed, (1,), 2**20, module="gpt")


ALL_MODULES = frozenset({"module"})


@pytest.mark.parametrize(
    ("capabilities", "drawn", "left_out"),
    [
        (Capabilities(tensors="local", features=ALL_MODULES), "gpt", "moe"),
        (ONLY_GPT, "gpt", "mlp"),
        (Capabilities(features=ALL_MODULES), "moe", "conv"),
    ],
    ids=["sharded", "outside", "parameter outside"],
)
def test_modules_outside_of_the_contract_are_not_drawn(
    capabilities: Capabilities, drawn: str, left_out: str
) -> None:
    listed = modules(PAIR, capabilities=capabilities)
    assert is_drawn(listed, lambda name: name == drawn)
    assert not is_drawn(listed, lambda name: name.startswith(left_out))


@given(module_parameter_lists("mlp", PAIR, capabilities=LOCAL))
def test_subject_without_gradient_dtypes_gets_none(
    drawn: tuple[ParameterSpec, ...],
) -> None:
    assert {spec.grad_dtype for spec in drawn} == {None}
    assert any(spec.requires_grad for spec in drawn)


@pytest.mark.parametrize(
    ("placements", "shape", "large"),
    [
        (("_S1", "S1"), (3, 0), (257, 4)),
        (("S0", "R"), (3, 3), (342, 3)),
        (None, (), (1025,)),
    ],
)
def test_dims_with_even_shards_keep_them(
    placements: tuple[str, ...] | None, shape: tuple[int, ...], large: tuple[int, ...]
) -> None:
    """Strided shards have to be even, or the scenario is refused."""
    spec = ParameterSpec("w", shape, placements)
    found = _with_elements(Scenario(GRID, (spec,), (1,), 64), 1025)
    assert found.parameters[0].global_shape == large
