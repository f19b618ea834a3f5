"""Gradients have other magnitudes in other parameters, and stay exact."""

from typing import Any

import pytest

from studies.redteam.wrong.values import (
    ClampsLargeOnes,
    ClearsByProduct,
    SkipsOnOverflow,
    TurnsNanToZero,
)
from syncverify.bugbank.bases.main_grads import AveragedMainGrads, MainGrads
from syncverify.bugbank.bases.view_buckets import ViewBuckets
from syncverify.scenario.scenario import Scenario
from syncverify.scenario.specs import MeshSpec, ParameterSpec
from tests.programs import identities, violations
from tests.quality.planted.magnitudes import (
    DropsSmallNumbers,
    DropsTinyNumbers,
    ForgetsNegativeInf,
    SendsFixedPoint,
    SpreadsOverflows,
)


def wrong_parameters(subject: type[Any], dtype: str) -> set[str]:
    specs = tuple(ParameterSpec(f"p{n}", (4,), ("R",), dtype) for n in range(5))
    scenario = Scenario(MeshSpec((2,), ("dp",)), specs, (1,), 1024)
    found = violations(subject, scenario)
    return {name for violation in found for name in violation.parameters}


@pytest.mark.parametrize(
    ("subject", "dtype", "wrong"),
    [
        (ClampsLargeOnes, "float32", {"p2", "p3"}),
        (DropsSmallNumbers, "float32", {"p1", "p4"}),
        (DropsTinyNumbers, "float32", {"p4"}),
        (DropsTinyNumbers, "bfloat16", {"p4"}),
        (SendsFixedPoint, "float32", {"p1", "p4"}),
        (SendsFixedPoint, "bfloat16", {"p1", "p4"}),
        (SendsFixedPoint, "float16", set()),
    ],
)
def test_what_is_right_for_small_numbers_alone_is_wrong(
    subject: type[Any], dtype: str, wrong: set[str]
) -> None:
    assert wrong_parameters(subject, dtype) == wrong


def overflowing(word: str) -> Scenario:
    """Return a program in which two of three gradients overflow."""
    specs = (
        ParameterSpec("p0", (4,), ("R",), gradient=word),
        ParameterSpec("p1", (4,), None, gradient=word),
        ParameterSpec("p2", (4,), ("R",)),
    )
    return Scenario(MeshSpec((2,), ("dp",)), specs, (2, 1), 1024)


@pytest.mark.parametrize("word", ["inf", "nan"])
@pytest.mark.parametrize(
    ("subject", "identity"),
    [
        (TurnsNanToZero, ("gradient_equals_reference", "overflow_hidden")),
        (SpreadsOverflows, ("gradient_equals_reference", "not_finite")),
        (ClearsByProduct, ("zero_grad_clears", "gradient_left")),
        (SkipsOnOverflow, ("every_wait_completes", "deadlock")),
    ],
)
def test_a_gradient_that_overflows_is_passed_on_and_cleared(
    subject: type[Any], identity: tuple[str, str], word: str
) -> None:
    assert identity in identities(subject, overflowing(word))


@pytest.mark.parametrize("word", ["inf", "nan"])
@pytest.mark.parametrize("subject", [MainGrads, AveragedMainGrads, ViewBuckets])
def test_overflows_that_are_passed_on_are_right(subject: type[Any], word: str) -> None:
    assert identities(subject, overflowing(word)) == set()


@pytest.mark.parametrize(
    ("subject", "causes"),
    [(ForgetsNegativeInf, {"overflow_hidden"}), (MainGrads, set())],
)
def test_some_overflows_are_negative(subject: type[Any], causes: set[str]) -> None:
    specs = tuple(
        ParameterSpec(f"p{n}", (4,), ("R",), gradient="inf") for n in range(4)
    )
    scenario = Scenario(MeshSpec((2,), ("dp",)), specs, (1,), 1024)
    assert {each.cause for each in violations(subject, scenario)} == causes
