"""Modules that are drawn for a subject, and the modules that shrinking ends at."""

from random import Random
from typing import Any

import pytest
from hypothesis import HealthCheck, find, given, settings
from hypothesis import strategies as st
from hypothesis.errors import NoSuchExample

from syncverify.program.modules import module_parameters
from syncverify.scenario.contract import Capabilities
from syncverify.scenario.feature_table import PLAIN
from syncverify.scenario.scenario import Scenario
from syncverify.scenario.specs import MeshSpec
from syncverify.strategies import module_parameter_lists, modules, scenarios

PAIR = MeshSpec((2,), ("dp",))
LOCAL = Capabilities(tensors="local")
LOCAL_MODULES = Capabilities(tensors="local", features=frozenset({"module"}))
ONLY_GPT = Capabilities(features=frozenset({"module=gpt"}))


def minimal(strategy: st.SearchStrategy[Any], wanted: Any = lambda _: True) -> Any:
    """Find and shrink, the same way every time."""
    return find(
        strategy,
        wanted,
        settings=settings(
            max_examples=1000, database=None, suppress_health_check=list(HealthCheck)
        ),
        random=Random(0),
    )


def test_smallest_example_has_no_module() -> None:
    assert minimal(modules(PAIR)) == PLAIN


def test_smallest_module_is_the_perceptron() -> None:
    assert minimal(modules(PAIR), lambda name: name != PLAIN) == "mlp"


def test_smallest_parameters_are_as_the_module_lists_them() -> None:
    smallest = minimal(module_parameter_lists("gpt", PAIR))
    assert smallest == module_parameters("gpt", PAIR)


@pytest.mark.nightly
def test_smallest_scenario_with_a_module_is_otherwise_plain() -> None:
    found = minimal(scenarios(capabilities=ONLY_GPT), lambda s: s.module == "gpt")
    alone = MeshSpec((1,), ("dp",))
    listed = module_parameters("gpt", alone)
    assert found == Scenario(alone, listed, (1,), 2**20, module="gpt")


def test_subject_of_plain_tensors_gets_replicated_modules() -> None:
    drawn = modules(PAIR, capabilities=LOCAL_MODULES)
    assert minimal(drawn, lambda name: name == "gpt")
    with pytest.raises(NoSuchExample):
        minimal(drawn, lambda name: name == "moe")


def test_module_outside_of_the_contract_is_not_drawn() -> None:
    drawn = modules(PAIR, capabilities=ONLY_GPT)
    assert minimal(drawn, lambda name: name == "gpt")
    with pytest.raises(NoSuchExample):
        minimal(drawn, lambda name: name not in {PLAIN, "gpt"})


def test_module_with_a_parameter_outside_of_the_contract_is_not_drawn() -> None:
    drawn = modules(PAIR, capabilities=Capabilities(features=frozenset({"module"})))
    assert minimal(drawn, lambda name: name == "moe")
    with pytest.raises(NoSuchExample):
        minimal(drawn, lambda name: name.startswith("conv"))


@given(st.data())
def test_subject_without_gradient_dtypes_gets_none(data: st.DataObject) -> None:
    drawn = data.draw(module_parameter_lists("mlp", PAIR, capabilities=LOCAL))
    assert {spec.grad_dtype for spec in drawn} == {None}
    assert any(spec.requires_grad for spec in drawn)
