"""Searches of a contract with a narrow wire find what rounds elsewhere, and accuse no right one."""

import pytest

from syncverify.scenario.contract import Capabilities
from syncverify.scenario.contributions import contribution
from syncverify.scenario.scenario import Scenario
from tests.programs import identities
from tests.quality.planted.cancelling import (
    CANCELLING,
    ROUNDED,
    HoldsSumsNarrow,
    SendsNarrow,
)
from tests.quality.planted.first_drawn import first_drawn
from tests.quality.planted.same_bits import DIFFER, ONE, GathersParts, KeepsOwnPart

HYBRID = "hsdp:{},reduce_dtype=bfloat16"


def test_the_first_and_the_third_micro_batch_cancel_out() -> None:
    first, small, third = (
        contribution(
            CANCELLING, CANCELLING.parameters[0], rank=1, step=0, micro_batch=m
        )
        for m in range(3)
    )
    assert (first + third == 0).all()
    assert (first.abs() >= 256).all()
    assert (small.abs() <= 256).all()


def test_a_search_of_plain_steps_meets_them() -> None:
    def is_met(scenario: Scenario) -> bool:
        return any(each.gradient == "cancelling" for each in scenario.parameters)

    assert first_drawn(is_met, Capabilities(), 500) is not None


@pytest.mark.slow
def test_fsdp2_holds_deferred_sums_in_the_dtype_of_the_wire() -> None:
    """See docs/findings.md."""
    assert ROUNDED in identities(HYBRID.format("all_reduce=last"), CANCELLING)
    assert identities(HYBRID.format("gradient_sync=each"), CANCELLING) == set()


def test_a_lost_sum_is_not_within_the_bound_of_one_that_rounds() -> None:
    class LosesOne(GathersParts):
        def wait(self) -> None:
            pass

    found = {name for name, _ in identities(LosesOne, ONE)}
    assert "gradient_is_within_rounding" in found
    assert "gradient_equals_reference" not in found


@pytest.mark.long
@pytest.mark.parametrize(
    ("defect", "right", "identity"),
    [(HoldsSumsNarrow, SendsNarrow, ROUNDED), (KeepsOwnPart, GathersParts, DIFFER)],
)
def test_a_search_of_a_narrow_wire_finds_the_defect_alone(
    defect: type, right: type, identity: tuple[str, str]
) -> None:
    played = 0

    def is_wrong(drawn: Scenario) -> bool:
        nonlocal played
        played += 1
        assert identities(right, drawn) == set()
        return identity in identities(defect, drawn)

    assert first_drawn(is_wrong, right.capabilities, 60) is not None
    assert played > 1
