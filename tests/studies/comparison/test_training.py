"""A scenario is repeated until it is as long as a training."""

from dataclasses import replace

import pytest

from studies.comparison.training import NUM_STEPS, trained
from syncverify.scenario.scenario import Scenario
from syncverify.scenario.specs import MeshSpec, ParameterSpec

ONE = Scenario(MeshSpec((2,), ("dp",)), (ParameterSpec("p", (2,), ("R",)),), (3,), 64)


def test_a_step_comes_again_and_again() -> None:
    assert trained(ONE).accumulations == (3,) * NUM_STEPS
    assert trained(ONE).events == ()


def test_events_stay_with_their_steps() -> None:
    two = replace(ONE, accumulations=(1, 3), events=("plain", "rebind"))
    assert trained(two).accumulations == (1, 3) * 5
    assert trained(two).events == ("plain", "rebind") * 5


@pytest.mark.parametrize("count", [NUM_STEPS, NUM_STEPS + 1])
def test_a_long_run_stays_as_it_is(count: int) -> None:
    long = replace(ONE, accumulations=(1,) * count)
    assert trained(long) == long
