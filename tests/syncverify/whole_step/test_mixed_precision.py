"""Random trainings in lower dtypes: right ones are silent, and a factor of 2 is named."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from syncverify.whole_step.causes import Scaled
from syncverify.whole_step.values import Quantity
from tests.syncverify.whole_step.random_trainings import FACTOR, drawn, judged

# torch warns of views that our models do not change.
pytestmark = pytest.mark.filterwarnings("ignore:FSDP2-wrapped module")
SAMPLE = range(4)
# 1,000 trainings of each kind.
CHUNKS = [range(first, first + 100) for first in range(0, 1000, 100)]


def check_silent(seed: int) -> None:
    result = judged(drawn(seed))
    assert result is None or result.is_right, str(result)


def check_named(seed: int) -> None:
    result = judged(drawn(seed, is_wrong=True))
    if result is not None:
        first = result.mistakes[0].finding
        assert first.quantity in {Quantity.GRADIENT, Quantity.STEPPED}
        assert isinstance(first.cause, Scaled), str(result)
        assert first.cause.factor == FACTOR


CHECKS = pytest.mark.parametrize("check", [check_silent, check_named])


@pytest.mark.long
@CHECKS
def test_a_sample_of_random_trainings_is_judged_rightly(
    check: Callable[[int], None],
) -> None:
    for seed in SAMPLE:
        check(seed)


@pytest.mark.nightly
@CHECKS
@pytest.mark.parametrize("chunk", CHUNKS, ids=str)
def test_random_trainings_in_lower_dtypes_are_judged_rightly(
    check: Callable[[int], None], chunk: range
) -> None:
    for seed in chunk:
        check(seed)
