"""Remains of a subject, and objects that it holds more and more of, are found."""

import random
from dataclasses import replace
from typing import Any

import pytest
import torch

from studies.redteam.wrong.leftovers import LeavesFlatParameters, SeedsPython
from syncverify.backends.sim import SimBackend
from syncverify.bugbank.bases.main_grads import AveragedMainGrads
from syncverify.program.generators import restored_generators
from syncverify.scenario.contract import Capabilities
from syncverify.scenario.scenario import Scenario
from syncverify.scenario.specs import MeshSpec, ParameterSpec
from syncverify.subjects.subject import resolve
from tests.programs import identities
from tests.quality.planted.planted import Planted
from tests.quality.planted.remains import (
    CAP,
    REMAINS,
    RIGHT,
    CountsCapInElements,
    KeepsCap,
)

SCENARIO = Scenario(
    MeshSpec((2,), ("dp",)),
    (
        ParameterSpec("w", (2, 3), ("R",)),
        ParameterSpec("one", (3,), None),
        ParameterSpec("other", (3,), None),
    ),
    (1,) * 6,
    2**20,
    backward="hooks_of_others",
)


@pytest.fixture(autouse=True)
def _own_backward(monkeypatch: pytest.MonkeyPatch) -> None:
    """Put torch's `backward` back after a test: one subject replaces it."""
    monkeypatch.setattr(torch.Tensor, "backward", torch.Tensor.backward)


class JoinsBuckets(CountsCapInElements):
    capabilities = Capabilities()


@pytest.mark.parametrize("defect", REMAINS, ids=lambda each: each.subject.__name__)
def test_remains_are_found(defect: Planted) -> None:
    assert identities(defect.subject, SCENARIO) == {defect.identity}


@pytest.mark.parametrize("seed", range(4))
def test_a_seed_shows_in_a_process_that_was_seeded_alike(seed: int) -> None:
    with restored_generators():
        random.seed(seed)
        found = identities(SeedsPython, SCENARIO)
    assert found == {("unbind_restores_parameters", "generator_seeded")}


@pytest.mark.parametrize("subject", RIGHT, ids=lambda each: each.__name__)
def test_what_ends_with_a_block_or_has_a_bound_is_right(subject: type[Any]) -> None:
    assert identities(subject, SCENARIO) == set()


@pytest.mark.parametrize(
    ("subject", "cap_bytes", "expected"),
    [
        (CountsCapInElements, 24, {(CAP, "over_cap")}),
        (CountsCapInElements, 48, set()),  # two gradients fit
        (KeepsCap, 24, set()),
        (KeepsCap, 1, set()),  # no gradient fits
        (JoinsBuckets, 24, set()),  # promises nothing
    ],
)
def test_a_cap_that_is_promised_is_kept(
    subject: type[Any], cap_bytes: int, expected: set[tuple[str, str]]
) -> None:
    pair = tuple(ParameterSpec(name, (2, 3), ("R",)) for name in ("one", "other"))
    scenario = Scenario(MeshSpec((2,), ("dp",)), pair, (1,), cap_bytes)
    assert identities(subject, scenario) == expected


def test_a_subject_that_owns_the_parameters_may_keep_them_together() -> None:
    found = resolve(LeavesFlatParameters)
    owning = replace(found.capabilities, owns_parameters=True)
    assert identities(replace(found, capabilities=owning), SCENARIO) == set()


@pytest.mark.parametrize("defect", REMAINS, ids=lambda each: each.subject.__name__)
def test_the_process_is_as_it_was_before_a_run(defect: Planted) -> None:
    before = torch.get_default_dtype(), torch.get_rng_state(), random.getstate()
    SimBackend().run(SCENARIO, resolve(defect.subject))
    assert torch.get_default_dtype() == before[0]
    assert torch.equal(torch.get_rng_state(), before[1])
    assert random.getstate() == before[2]


class OneABucket(AveragedMainGrads):
    capabilities = replace(AveragedMainGrads.capabilities, keeps_bucket_cap=True)


def test_gradients_of_equal_values_are_not_counted_together_against_the_cap() -> None:
    specs = [ParameterSpec(f"p{n}", (), ("R",), dtype="bfloat16") for n in range(12)]
    scenario = Scenario(MeshSpec((3,), ("dp",)), tuple(specs), (2,), 1)
    assert identities(OneABucket, scenario) == set()
