"""Elements at a wrong offset of a flat buffer, overflows beside them, and wrong factors."""

from fractions import Fraction

import pytest
import torch

from syncverify.judge.decoding import explain
from syncverify.judge.properties.circumstances import fitting_causes, other_readings
from syncverify.judge.reference import ExpectedGradient, reference
from syncverify.judge.violation import Cause
from syncverify.scenario.contract import Capabilities
from syncverify.scenario.scenario import Scenario
from syncverify.scenario.specs import MeshSpec, ParameterSpec

ALL_OF_IT = ParameterSpec("all_of_it", (), ("R",), gradient="inf")
SOME_OF_IT = ParameterSpec("some_of_it", (3,), ("R",), gradient="inf")
FINITE = ParameterSpec("finite", (4,), ("R",))
OTHER = ParameterSpec("other", (5,), ("R",))
NARROW = ParameterSpec("narrow", (3,), ("R",), "bfloat16")
SCENARIO = Scenario(
    MeshSpec((2,), ("dp",)), (ALL_OF_IT, SOME_OF_IT, FINITE, OTHER, NARROW), (2,), 2**20
)


def expected(spec: ParameterSpec) -> ExpectedGradient:
    return ExpectedGradient(
        reference(SCENARIO, Capabilities()), spec, 0, 0, 2, (0, 1), 1
    )


def right(spec: ParameterSpec) -> torch.Tensor:
    return expected(spec).value().to(getattr(torch, spec.dtype))


def kind(spec: ParameterSpec, observed: torch.Tensor) -> str:
    cause = explain(expected(spec), observed)
    return cause.kind


def test_a_finite_element_of_elsewhere_in_the_place_of_inf_is_misplaced() -> None:
    cause = explain(expected(ALL_OF_IT), right(FINITE)[2])
    assert cause.kind == "misplaced"
    assert cause.text == "its element 0 has the value of element 2 of 'finite'"


def test_inf_of_elsewhere_beside_finite_elements_of_elsewhere_is_misplaced() -> None:
    shifted = torch.cat([right(OTHER)[:3], right(ALL_OF_IT).reshape(1)])
    assert kind(FINITE, shifted) == "misplaced"


def test_one_gradient_in_another_order_is_not_at_a_wrong_offset() -> None:
    assert kind(FINITE, right(FINITE).roll(1)) == "unexplained"


def test_a_finite_number_of_unknown_origin_hides_no_overflow() -> None:
    assert kind(ALL_OF_IT, torch.tensor(0.123)) == "unexplained"
    wrong = torch.where(right(SOME_OF_IT).isfinite(), 0.123, 0.5)
    assert kind(SOME_OF_IT, wrong) == "unexplained"


def test_an_overflow_beside_right_elements_or_at_the_limit_is_hidden() -> None:
    hidden = torch.nan_to_num(right(SOME_OF_IT), nan=0.5, posinf=1.0, neginf=-1.0)
    assert kind(SOME_OF_IT, hidden) == "overflow_hidden"
    assert kind(ALL_OF_IT, torch.nan_to_num(right(ALL_OF_IT))) == "overflow_hidden"


def test_inf_alone_may_have_come_from_elsewhere() -> None:
    observed = right(FINITE).index_fill(0, torch.tensor([1]), torch.inf)
    assert kind(FINITE, observed) == "not_finite"
    inf = right(SOME_OF_IT)
    observed[1] = inf[~inf.isfinite()][0]
    assert "misplaced" in {e.kind for e in fitting_causes(expected(FINITE), observed)}


def test_one_element_of_a_narrow_dtype_may_be_found_by_chance() -> None:
    observed = right(NARROW)
    observed[0] = right(FINITE)[0].to(torch.bfloat16)
    assert kind(NARROW, observed) == "partly_wrong"


# The text names the factor that was used and the right one.


WEIGHT_OF_TWO = ParameterSpec("w", (17,), ("R",))
TWIN_OF_TWO = ParameterSpec("other", (17,), ("R",))
GRID = MeshSpec((2, 2), ("dp", "tp"))
WEIGHT = ParameterSpec("w", (17,), ("R", "R"))
SHARDED = ParameterSpec("sharded", (34,), ("R", "S0"))
TWIN = ParameterSpec("twin", (17,), ("R", "R"))
ON_GRID = Scenario(GRID, (WEIGHT, TWIN, SHARDED), (3,), 2**20)
HOLDERS, ALONG_DP = "the number of ranks that contribute", "the size of mesh axis 'dp'"
TWICE = "twice the right gradient: "
BY_ONE = "divided by 1 or not at all, and the mean divides by"


def due_of(
    spec: ParameterSpec, reduction: str, scenario: Scenario = ON_GRID
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
    due = due_of(spec, reduction)
    observed = (factor * due.value()).to(torch.float32)
    assert explain(due, observed) == Cause("scaled", f"it is {text}")


def test_a_divisor_that_is_no_known_number_is_reported_beside_the_right_one() -> None:
    due = due_of(WEIGHT, "mean")
    words = "every element is multiplied by 1/8"
    divided = "as if the sum were divided by 32, and not by 4"
    cause = explain(due, (due.value() / 8).to(torch.float32))
    assert cause == Cause("scaled", f"{words}, {divided}")


@pytest.mark.parametrize("factor", [3 / 8, -1 / 8])
def test_a_factor_that_no_whole_divisor_gives_is_reported_alone(factor: float) -> None:
    due = due_of(WEIGHT, "mean")
    cause = explain(due, (due.value() * factor).to(torch.float32))
    assert "as if" not in cause.text


def test_a_mean_is_due_by_the_number_of_its_ranks_alone() -> None:
    """The number of parameters is two as well, and is no divisor of a mean."""
    pair = Scenario(MeshSpec((2,), ("dp",)), (WEIGHT_OF_TWO, TWIN_OF_TWO), (3,), 2**20)
    due = due_of(WEIGHT_OF_TWO, "mean", pair)
    observed = (due.value() * 2).to(torch.float32)
    cause = explain(due, observed)
    readings = other_readings(due, observed, cause)
    assert [each for each in (cause.text, *readings) if BY_ONE in each] == [cause.text]


@pytest.mark.parametrize("factor", ["1/8", "4"])
def test_one_element_of_one_rank_tells_a_power_of_two(factor: str) -> None:
    alone = ParameterSpec("p0", (1,), ("R",))
    scenario = Scenario(MeshSpec((1,), ("dp",)), (alone,), (3,), 64)
    oracle = reference(scenario, Capabilities())
    due = ExpectedGradient(oracle, alone, 0, 0, 3, (0,), 1)
    cause = explain(due, (due.value() * float(Fraction(factor))).to(torch.float32))
    words = "which no number of the scenario explains"
    assert cause == Cause("scaled", f"it is multiplied by {factor}, {words}")
