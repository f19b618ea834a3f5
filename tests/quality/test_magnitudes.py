"""Gradients have other magnitudes in other parameters, and stay exact."""

from typing import Any

import pytest

from studies.redteam.wrong.values import ClampsLargeOnes
from tests.programs import violations
from tests.quality.planted.magnitudes import (
    DropsSmallNumbers,
    DropsTinyNumbers,
    SendsFixedPoint,
)
from tests.quality.planted.planted import training


def wrong_parameters(subject: type[Any], dtype: str) -> set[str]:
    scenario = training(5, cap_bytes=1024, parameter={"dtype": dtype})
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
