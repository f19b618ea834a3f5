"""Elements at a wrong offset of a flat buffer, and overflows beside them."""

import torch

from syncverify.judge.decoding import explain
from syncverify.judge.expected_gradient import ExpectedGradient
from syncverify.judge.properties.other_explanations import fitting_causes
from syncverify.judge.reference import reference
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
    assert cause is not None
    return cause.kind


def test_a_finite_element_of_elsewhere_in_the_place_of_inf_is_misplaced() -> None:
    cause = explain(expected(ALL_OF_IT), right(FINITE)[2])
    assert cause is not None
    assert cause.kind == "misplaced"
    assert cause.text == "its element 0 has the value of element 2 of 'finite'"


def test_inf_of_elsewhere_beside_finite_elements_of_elsewhere_is_misplaced() -> None:
    shifted = torch.cat([right(OTHER)[:3], right(ALL_OF_IT).reshape(1)])
    assert kind(FINITE, shifted) == "misplaced"


def test_elements_of_two_gradients_at_one_offset_are_misplaced() -> None:
    shifted = torch.cat([right(FINITE)[1:], right(OTHER)[:1]])
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
