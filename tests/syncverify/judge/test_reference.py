"""The reference: right gradients of each rank, and of the ranks that contribute to it."""

from dataclasses import replace

import pytest
import torch
from hypothesis import given

from syncverify.judge.reference import ExpectedGradient, MicroBatchKey, reference
from syncverify.scenario import step_plan
from syncverify.scenario.contract import EVERYTHING, Capabilities
from syncverify.scenario.contributions import contribution, magnitude
from syncverify.scenario.scenario import Scenario
from syncverify.scenario.specs import MeshSpec, ParameterSpec
from syncverify.strategies import scenarios

GRID = MeshSpec((2, 2), ("dp", "tp"))
WEIGHT = ParameterSpec("w", (5,), ("R", "S0"))
PLAIN = ParameterSpec("b", (), None, "bfloat16", "float32")
FROZEN = ParameterSpec("f", (3,), ("R", "R"), requires_grad=False)
SCENARIO = Scenario(GRID, (WEIGHT, PLAIN, FROZEN), (2, 1), 64)
SUM, MEAN = Capabilities(), Capabilities(reduction="mean")
# Gradients of modules round, and those that overflow are no contributions.
EXACT = replace(
    EVERYTHING, outside=frozenset({"module", "gradient=inf", "gradient=nan"})
)


@pytest.mark.long
@given(scenarios(capabilities=EXACT))
def test_micro_batches_are_the_contributions(scenario: Scenario) -> None:
    """Autograd on the scenario's loss gives the contributions that the loss is built from."""
    oracle = reference(scenario, SUM)
    expected = {
        (spec.name, rank, step, m): contribution(
            scenario, spec, rank=rank, step=step, micro_batch=m
        )
        * magnitude(scenario, spec)
        * step_plan.contributes(scenario, spec, rank, step, m)
        for spec in scenario.parameters
        if spec.requires_grad
        for rank in range(scenario.mesh.num_ranks)
        for step in range(scenario.num_steps + 1)
        for m in range(step_plan.num_micro_batches(scenario, step))
    }
    for key, value in expected.items():
        assert torch.equal(oracle.micro_batches[MicroBatchKey(*key)], value)
    assert oracle.micro_batches.keys() == expected.keys()


@pytest.mark.parametrize(("capabilities", "divisor"), [(SUM, 1), (MEAN, 2)])
def test_reduced_adds_up_the_contributors(
    capabilities: Capabilities, divisor: int
) -> None:
    oracle = reference(SCENARIO, capabilities)
    by_hand = sum(
        contribution(SCENARIO, WEIGHT, rank=rank, step=0, micro_batch=m)
        for rank in (1, 3)
        for m in (0, 1)
    )
    assert oracle.contributors(WEIGHT, 1) == (1, 3)
    assert oracle.divisor(WEIGHT, 1) == divisor
    assert torch.equal(oracle.reduced(WEIGHT, 1, 0), by_hand / divisor)


def test_a_micro_batch_that_a_rank_leaves_out_is_zero() -> None:
    events = ("missing_backward/on_odd_ranks", "plain")
    odd = reference(replace(SCENARIO, events=events), SUM).micro_batches
    values = [odd[MicroBatchKey("w", rank, 0, 1)].any() for rank in (0, 1)]
    assert values == [True, False]


def test_plain_parameter_is_the_ranks_own() -> None:
    oracle = reference(SCENARIO, MEAN)
    assert oracle.contributors(PLAIN, 2) == (2,)
    assert oracle.divisor(PLAIN, 2) == 1
    assert torch.equal(oracle.reduced(PLAIN, 2, 1), oracle.local(PLAIN, 2, 1, [0]))


@pytest.mark.parametrize("key", [("f", 0, 0, 0), ("w", 4, 0, 0), ("w", -1, 0, 0)])
def test_a_gradient_that_does_not_exist_is_a_key_error_every_time(
    key: tuple[str, int, int, int],
) -> None:
    # A scenario of no other test: references are cached.
    oracle = reference(replace(SCENARIO, bucket_cap_bytes=256 + key[1]), SUM)
    for _ in range(2):  # a rank that was played is not played again
        with pytest.raises(KeyError) as caught:
            oracle.micro_batches[MicroBatchKey(*key)]
        assert caught.value.args == (key,)


UNUSED = ParameterSpec("u", (2,), ("R", "R"), used="never")
LATE = ParameterSpec("late", (2,), ("R", "R"), used="not_in_first_micro_batch")
NARROW = ParameterSpec("n", (5,), ("R", "S0"), "bfloat16", "float32")
CAST = Scenario(GRID, (NARROW, UNUSED, LATE), (3, 3), 64, events=("plain", "cast"))


def expected(spec: ParameterSpec, count: int = 2, step: int = 0) -> ExpectedGradient:
    """Return the right gradient of rank 1: the sum over ranks 1 and 3, divided by 4."""
    return ExpectedGradient(reference(CAST, SUM), spec, 1, step, count, (1, 3), 4)


@pytest.mark.parametrize(
    ("spec", "count", "may_be_none"),
    [
        (UNUSED, 2, True),
        (LATE, 1, True),
        (LATE, 2, False),
        (NARROW, 1, False),
        (NARROW, 0, True),
    ],
)
def test_gradient_may_be_none_where_no_rank_contributes(
    spec: ParameterSpec, count: int, *, may_be_none: bool
) -> None:
    assert expected(spec, count).may_be_none() == may_be_none


def test_dtype_is_that_of_the_gradient_or_the_one_that_the_caller_casts_to() -> None:
    assert expected(NARROW).dtypes() == {"float32"}
    assert expected(NARROW, step=1).dtypes() == {"float32", "float64"}


def test_ranks_whose_part_has_the_same_shape_are_comparable() -> None:
    assert expected(NARROW).comparable() == (1, 3)
    assert expected(UNUSED).comparable() == (0, 1, 2, 3)
