"""How far a value is from that of one rank."""

import math

import pytest

from syncverify.whole_step.differences import ComparedValue
from tests.syncverify.whole_step.comparisons import compared


@pytest.mark.parametrize(
    ("value", "error", "share"),
    [
        (compared(2.0, 1.0), 1.0, 1e12),
        # Zero in exact arithmetic: a difference is no large part of it.
        (compared(3e-17, 1e-20), 1.0, 3e-5),
        (compared(0.0, 0.0), 0.0, 0.0),
        (compared(math.nan, 1.0), math.inf, math.inf),
        (compared(math.inf, math.inf), 0.0, 0.0),
    ],
)
def test_error_is_relative_to_the_value_and_share_to_the_tolerance(
    value: ComparedValue, error: float, share: float
) -> None:
    assert value.error == pytest.approx(error, rel=1e-2)
    assert value.share_of_rounding == pytest.approx(share, rel=1e-2)
