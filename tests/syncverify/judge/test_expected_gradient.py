"""The right gradient and its parts, of which decoding tries alternatives."""

from syncverify.judge.expected_gradient import ExpectedGradient
from syncverify.judge.reference import reference
from syncverify.scenario.contract import Capabilities
from syncverify.scenario.scenario import Scenario
from syncverify.scenario.specs import MeshSpec, ParameterSpec

WEIGHT = ParameterSpec("w", (5,), ("R", "S0"), "bfloat16", "float32")
UNUSED = ParameterSpec("u", (2,), ("R", "R"), used="never")
LATE = ParameterSpec("late", (2,), ("R", "R"), used="not_in_first_micro_batch")
SCENARIO = Scenario(
    MeshSpec((2, 2), ("dp", "tp")),
    (WEIGHT, UNUSED, LATE),
    (3, 3),
    64,
    events=("plain", "cast"),
)


def expected(
    spec: ParameterSpec = WEIGHT, *, step: int = 0, count: int = 2
) -> ExpectedGradient:
    """Return the right gradient of rank 1: the sum over ranks 1 and 3, divided by 4."""
    oracle = reference(SCENARIO, Capabilities())
    return ExpectedGradient(oracle, spec, 1, step, count, (1, 3), 4)


def test_gradient_may_be_none_where_nobody_contributes() -> None:
    assert expected(UNUSED).may_be_none()
    assert expected(LATE, count=1).may_be_none()
    assert not expected(LATE, count=2).may_be_none()
    assert not expected(WEIGHT, count=1).may_be_none()
    assert expected(WEIGHT, count=0).may_be_none()


def test_dtype_is_that_of_the_gradient_or_what_the_caller_casts_to() -> None:
    assert expected().dtypes() == {"float32"}
    assert expected(step=1).dtypes() == {"float32", "float64"}


def test_ranks_whose_part_has_the_same_shape_are_comparable() -> None:
    assert expected().comparable() == (1, 3)
    assert expected(UNUSED).comparable() == (0, 1, 2, 3)
