"""The bound on rounding: sums in any order are within, all other values are not."""

import math
from dataclasses import replace

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from syncverify.judge.reference import ExpectedGradient, reference
from syncverify.judge.rounding import error_bound, explain_rounded
from syncverify.playing.program.modules import module_parameters
from syncverify.scenario.contract import Capabilities
from syncverify.scenario.scenario import Scenario
from syncverify.scenario.specs import MeshSpec

GRID = MeshSpec((2, 2), ("dp", "tp"))
SUM, MEAN = Capabilities(), Capabilities(reduction="mean")


def expected(
    grad_dtype: str = "float32",
    capabilities: Capabilities = SUM,
    parameter: str = "up.weight",
) -> ExpectedGradient:
    """Return the right gradient on rank 0 of 4 after two micro-batches of a perceptron."""
    specs = tuple(
        replace(spec, grad_dtype=grad_dtype) for spec in module_parameters("mlp", GRID)
    )
    scenario = Scenario(GRID, specs, (2,), 1, module="mlp")
    spec = next(spec for spec in specs if spec.name == parameter)
    oracle = reference(scenario, capabilities)
    return ExpectedGradient(
        oracle, spec, 0, 0, 2, (0, 1, 2, 3), oracle.divisor(spec, 0)
    )


def terms(due: ExpectedGradient) -> list[torch.Tensor]:
    dtype = getattr(torch, due.spec.effective_grad_dtype)
    return [due.part(r, [m]).to(dtype) for r in due.ranks for m in range(due.count)]


def added_up(parts: list[torch.Tensor], pairs: list[int]) -> torch.Tensor:
    """Add in the order that the numbers say, each addition rounded."""
    parts = list(parts)
    for pair in pairs:
        one = parts.pop(pair % len(parts))
        parts.append(parts.pop(pair // 8 % len(parts)) + one)
    (result,) = parts
    return result


@pytest.mark.long
@given(
    st.lists(st.integers(0, 63), min_size=7, max_size=7),
    st.sampled_from(["float32", "bfloat16", "float16"]),
    st.sampled_from([SUM, MEAN]),
)
def test_every_order_of_summation_is_within_the_bound(
    pairs: list[int], dtype: str, capabilities: Capabilities
) -> None:
    due = expected(dtype, capabilities)
    total = added_up(terms(due), pairs)
    scaled_first = added_up([part / due.divisor for part in terms(due)], pairs)
    assert explain_rounded(due, total / due.divisor) is None
    assert explain_rounded(due, total * (1 / due.divisor)) is None
    assert explain_rounded(due, scaled_first) is None


@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
def test_one_element_off_by_three_bounds_is_found(dtype: str) -> None:
    due = expected(dtype)
    value = due.value().clone()
    value[2, 1] += 3 * error_bound(due)[2, 1]
    cause = explain_rounded(due, value.to(getattr(torch, dtype)))
    assert cause.kind == "out_of_bound"
    assert cause.text.startswith(
        "1 of 12 elements are farther off than rounding can be, element 7 (flattened) the "
        "most: by "
    )


@pytest.mark.parametrize(("rank", "micro_batch"), [(0, 1), (3, 0)])
def test_a_missing_contribution_is_found_and_named(rank: int, micro_batch: int) -> None:
    due = expected()
    value = due.value() - due.part(rank, [micro_batch])
    cause = explain_rounded(due, value.to(torch.float32))
    assert cause.kind == "micro_batch_missing"
    assert cause.text == f"micro-batch {micro_batch} of rank {rank} is missing"


def test_a_gradient_that_cannot_be_compared_is_malformed() -> None:
    due = expected()
    value = due.value().to(torch.float32)
    observed = [None, value[0], value.to(torch.bfloat16), value * math.inf]
    causes = [explain_rounded(due, gradient) for gradient in observed]
    kinds = [cause.kind for cause in causes if cause is not None]
    assert kinds == ["gradient_missing", "wrong_shape", "wrong_dtype", "not_finite"]


@pytest.mark.parametrize("dtype", ["bfloat16", "float16"])
@pytest.mark.parametrize("factor", [2.0, 1.31])
def test_few_elements_of_a_narrow_dtype_tell_no_cause(
    dtype: str, factor: float
) -> None:
    due = expected(dtype, parameter="down.bias")
    value = (due.value() * factor).to(getattr(torch, dtype))
    cause = explain_rounded(due, value)
    assert cause.kind == "out_of_bound"


def test_one_term_alone_has_to_be_exact() -> None:
    due = replace(expected(), count=1, ranks=(0,))
    value = due.value().to(torch.float32)
    next_number = torch.nextafter(value, torch.full_like(value, math.inf))
    assert explain_rounded(due, value) is None
    assert explain_rounded(due, next_number) is not None
