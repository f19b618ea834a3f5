"""The reference: right gradients of each rank, and of the ranks that contribute to it."""

from dataclasses import replace
from typing import Any

import pytest
import torch
from hypothesis import given

from syncverify.backends.sim import SimBackend
from syncverify.judge import reference as judge_reference
from syncverify.judge.expected_gradient import ExpectedGradient
from syncverify.judge.properties import check
from syncverify.judge.reference import (
    MicroBatchKey,
    reference,
)
from syncverify.program.model import LocalModel, build_model
from syncverify.program.modules.named import module_parameters
from syncverify.scenario import step_plan
from syncverify.scenario.contract import EVERYTHING, Capabilities
from syncverify.scenario.contributions import contribution, magnitude
from syncverify.scenario.layout import contributing_ranks
from syncverify.scenario.scenario import Scenario
from syncverify.scenario.specs import MeshSpec, ParameterSpec
from syncverify.strategies import scenarios
from syncverify.subjects.subject import resolve

GRID = MeshSpec((2, 2), ("dp", "tp"))
WEIGHT = ParameterSpec("w", (5,), ("R", "S0"))
PLAIN = ParameterSpec("b", (), None, "bfloat16", "float32")
FROZEN = ParameterSpec("f", (3,), ("R", "R"), requires_grad=False)
SCENARIO = Scenario(GRID, (WEIGHT, PLAIN, FROZEN), (2, 1), 64)
PAIR = MeshSpec((2,), ("dp",))
MLP = Scenario(PAIR, module_parameters("mlp", PAIR), (1, 2), 2**20, module="mlp")
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


@pytest.mark.parametrize(("scenario", "expected"), [(SCENARIO, "cpu"), (MLP, "meta")])
def test_real_numbers_are_computed_where_the_ranks_computed_them(
    monkeypatch: pytest.MonkeyPatch, scenario: Scenario, expected: str
) -> None:
    """Whole numbers are the same everywhere, and the CPU needs no copies."""
    devices: list[str] = []

    def build(*args: Any, device: torch.device, **options: Any) -> LocalModel:
        devices.append(device.type)
        return build_model(*args, device=torch.device("cpu"), **options)

    monkeypatch.setattr(judge_reference, "build_model", build)
    run = SimBackend().run(scenario, resolve("synchronizer"))
    on_device = replace(run, device=torch.device("meta"))
    assert check(scenario, on_device, SUM) == []
    assert set(devices) == {expected}


def test_local_sums_the_given_micro_batches_of_one_rank() -> None:
    oracle = reference(SCENARIO, SUM)
    one, two = (
        contribution(SCENARIO, WEIGHT, rank=3, step=0, micro_batch=m) for m in range(2)
    )
    assert torch.equal(oracle.local(WEIGHT, 3, 0, [0]), one)
    assert torch.equal(oracle.local(WEIGHT, 3, 0, [0, 1]), one + two)
    assert torch.equal(oracle.local(WEIGHT, 3, 0, []), one - one)
    assert oracle.local(WEIGHT, 3, 0, []).dtype == torch.float64


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


@pytest.mark.long
@given(scenarios())
def test_replicas_of_one_part_agree(scenario: Scenario) -> None:
    oracle = reference(scenario, SUM)
    for spec in scenario.trainable:
        first, *others = contributing_ranks(scenario.mesh, spec, 0)
        for other in others:
            torch.testing.assert_close(
                oracle.reduced(spec, other, 0),
                oracle.reduced(spec, first, 0),
                rtol=0,
                atol=0,
                equal_nan=True,  # a gradient may overflow
            )


def test_plain_parameter_is_the_ranks_own() -> None:
    oracle = reference(SCENARIO, MEAN)
    assert oracle.contributors(PLAIN, 2) == (2,)
    assert oracle.divisor(PLAIN, 2) == 1
    assert torch.equal(oracle.reduced(PLAIN, 2, 1), oracle.local(PLAIN, 2, 1, [0]))


def test_frozen_parameter_has_no_gradient() -> None:
    assert SCENARIO.trainable == (WEIGHT, PLAIN)
    oracle = reference(SCENARIO, SUM)
    oracle.micro_batches.play(0)
    assert {name for name, *_ in oracle.micro_batches} == {"w", "b"}


def test_gradients_are_kept_in_float64_and_made_of_products_only() -> None:
    """The features of autograd that scenarios test are no part of the reference."""
    specs = (replace(WEIGHT, use="twice"), PLAIN, FROZEN)
    oracle = reference(SCENARIO, SUM)
    used = reference(replace(SCENARIO, parameters=specs), SUM)
    key = MicroBatchKey("w", 0, 0, 0)
    assert oracle.micro_batches[key].dtype == torch.float64
    assert torch.equal(used.micro_batches[key], oracle.micro_batches[key])


def test_ranks_that_nobody_asks_about_are_not_played() -> None:
    # A scenario of no other test: references are cached.
    oracle = reference(replace(SCENARIO, bucket_cap_bytes=128), SUM)
    oracle.local(WEIGHT, 3, 0, [0])
    assert {rank for _, rank, *_ in oracle.micro_batches} == {3}


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


def alike(scenario: Scenario, spec: ParameterSpec, rank: int) -> tuple[int, ...]:
    known = reference(scenario, SUM)
    return ExpectedGradient(known, spec, rank, 0, 1, (rank,), 1).comparable()


def test_comparable_ranks_stay_few_in_a_large_world() -> None:
    mesh = MeshSpec((4096,), ("dp",))
    spec = ParameterSpec("w", (3,), ("R",))
    assert alike(Scenario(mesh, (spec,), (1,), 64), spec, 7) == tuple(range(64))


def test_reference_is_computed_once_per_scenario_and_capabilities() -> None:
    assert reference(SCENARIO, SUM) is reference(replace(SCENARIO), Capabilities())
    assert reference(SCENARIO, SUM) is not reference(SCENARIO, MEAN)
