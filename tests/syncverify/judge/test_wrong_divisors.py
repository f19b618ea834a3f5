"""The text names the factor that was used and the right one."""

from fractions import Fraction

import pytest
import torch

from syncverify.judge.cause import Cause
from syncverify.judge.decoding import explain
from syncverify.judge.expected_gradient import ExpectedGradient
from syncverify.judge.properties.other_explanations import other_readings
from syncverify.judge.reference import reference
from syncverify.scenario.contract import Capabilities
from syncverify.scenario.scenario import Scenario
from syncverify.scenario.specs import MeshSpec, ParameterSpec

WEIGHT_OF_TWO = ParameterSpec("w", (17,), ("R",))
OTHER = ParameterSpec("other", (17,), ("R",))
GRID = MeshSpec((2, 2), ("dp", "tp"))
WEIGHT = ParameterSpec("w", (17,), ("R", "R"))
SHARDED = ParameterSpec("sharded", (34,), ("R", "S0"))
TWIN = ParameterSpec("twin", (17,), ("R", "R"))
SCENARIO = Scenario(GRID, (WEIGHT, TWIN, SHARDED), (3,), 2**20)
HOLDERS, ALONG_DP = "the number of ranks that contribute", "the size of mesh axis 'dp'"
TWICE = "twice the right gradient: "
BY_ONE = "divided by 1 or not at all, and the mean divides by"


def expected(
    spec: ParameterSpec, reduction: str, scenario: Scenario = SCENARIO
) -> ExpectedGradient:
    oracle = reference(scenario, Capabilities(reduction=reduction))
    ranks, divisor = oracle.contributors(spec, 1), oracle.divisor(spec, 1)
    return ExpectedGradient(oracle, spec, 1, 0, 3, ranks, divisor)


@pytest.mark.parametrize(
    ("spec", "reduction", "factor", "text"),
    [
        (WEIGHT, "sum", 2, f"{TWICE}counted twice, or multiplied by 2, {ALONG_DP}"),
        (SHARDED, "sum", 2, f"{TWICE}counted or reduced twice, or multiplied by 2, {HOLDERS}"),
        (WEIGHT, "sum", 1 / 4, f"divided by 4, {HOLDERS}"),
        (WEIGHT, "mean", 4, f"the sum over ranks [0, 1, 2, 3] {BY_ONE} 4"),
        (SHARDED, "mean", 2, f"{TWICE}counted or reduced twice, or the sum is {BY_ONE} 2, {HOLDERS}"),
        (WEIGHT, "mean", 1 / 4, f"divided by 4, {HOLDERS}, once more: its sum by 16 and not by 4"),
    ],
)  # fmt: skip
def test_factors_name_their_possible_origins(
    spec: ParameterSpec, reduction: str, factor: float, text: str
) -> None:
    due = expected(spec, reduction)
    observed = (factor * due.value()).to(torch.float32)
    assert explain(due, observed) == Cause("scaled", f"it is {text}")


def test_a_divisor_that_is_no_known_number_is_reported_beside_the_right_one() -> None:
    due = expected(WEIGHT, "mean")
    words = "every element is multiplied by 1/8"
    divided = "as if the sum were divided by 32, and not by 4"
    cause = explain(due, (due.value() / 8).to(torch.float32))
    assert cause == Cause("scaled", f"{words}, {divided}")


@pytest.mark.parametrize("factor", [3 / 8, -1 / 8])
def test_a_factor_that_no_whole_divisor_gives_is_reported_alone(factor: float) -> None:
    due = expected(WEIGHT, "mean")
    cause = explain(due, (due.value() * factor).to(torch.float32))
    assert cause is not None
    assert "as if" not in cause.text


def test_a_mean_is_due_by_the_number_of_its_ranks_alone() -> None:
    """The number of parameters is two as well, and is no divisor of a mean."""
    pair = Scenario(MeshSpec((2,), ("dp",)), (WEIGHT_OF_TWO, OTHER), (3,), 2**20)
    due = expected(WEIGHT_OF_TWO, "mean", pair)
    observed = (due.value() * 2).to(torch.float32)
    cause = explain(due, observed)
    assert cause is not None
    readings = other_readings(due, observed, cause)
    assert [each for each in (cause.text, *readings) if BY_ONE in each] == [cause.text]


@pytest.mark.parametrize("factor", ["1/2", "1/8", "4"])
def test_one_element_of_one_rank_tells_a_power_of_two(factor: str) -> None:
    alone = ParameterSpec("p0", (1,), ("R",))
    scenario = Scenario(MeshSpec((1,), ("dp",)), (alone,), (3,), 64)
    oracle = reference(scenario, Capabilities())
    due = ExpectedGradient(oracle, alone, 0, 0, 3, (0,), 1)
    cause = explain(due, (due.value() * float(Fraction(factor))).to(torch.float32))
    words = "which no number of the scenario explains"
    assert cause == Cause("scaled", f"it is multiplied by {factor}, {words}")
