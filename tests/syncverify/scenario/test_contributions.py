"""The verdict has zero tolerance because these sums are exact."""

import math
from dataclasses import replace

import pytest
import torch
from hypothesis import example, given, settings
from hypothesis import strategies as st

from syncverify.scenario.contributions import contribution, shows_special_values
from syncverify.scenario.feature_table import BACKWARDS, ZERO
from syncverify.scenario.layout import contributing_ranks, local_shape
from syncverify.scenario.scenario import Scenario
from syncverify.scenario.specs import MeshSpec, ParameterSpec
from syncverify.strategies import scenarios


def everything(
    scenario: Scenario, spec: ParameterSpec, rank: int, step: int
) -> torch.Tensor:
    """Stack the contributions to a rank's gradient, shape (contributor, element)."""
    ranks = contributing_ranks(scenario.mesh, spec, rank)
    return torch.stack(
        [
            contribution(scenario, spec, rank=r, step=step, micro_batch=m).reshape(-1)
            for r in ranks
            for m in range(scenario.accumulations[step])
        ]
    )


def exact(values: torch.Tensor, dtype: str) -> bool:
    return torch.equal(values.to(getattr(torch, dtype)).to(torch.float64), values)


def wide(num_ranks: int, dtype: str = "bfloat16", accumulations: int = 4) -> Scenario:
    """Return a scenario of one replicated vector; bfloat16 has the least room for exact sums."""
    spec = ParameterSpec("p0", (33,), ("R",), dtype)
    return Scenario(MeshSpec((num_ranks,), ("dp",)), (spec,), (accumulations,), 2**20)


@pytest.mark.long
@settings(max_examples=10)
@given(scenarios(max_ranks=16), st.data())
@example(wide(3), None)
@example(wide(13), None)
@example(wide(64), None)
@example(wide(255), None)
@example(wide(15, "float16"), None)
def test_every_sum_is_exact(scenario: Scenario, data: st.DataObject | None) -> None:
    """In the dtypes of parameter and gradient; in any order, hence also every prefix."""
    rank = data.draw(st.integers(0, scenario.mesh.num_ranks - 1)) if data else 0
    for step in range(scenario.num_steps):
        for spec in scenario.parameters:
            parts = everything(scenario, spec, rank, step)
            count = len(contributing_ranks(scenario.mesh, spec, rank))
            assert exact(parts, spec.dtype)
            for sums in (parts.cumsum(dim=0), parts.flip(0).cumsum(dim=0)):
                assert exact(sums, spec.effective_grad_dtype)
                assert exact(sums / count, spec.effective_grad_dtype)
            assert exact(parts / count, spec.effective_grad_dtype)


@pytest.mark.parametrize("dtype", ["float32", "float64", "bfloat16", "float16"])
@pytest.mark.parametrize("num_ranks", [3, 7, 14, 30])
def test_a_mean_by_a_product_is_the_mean_by_a_quotient(
    num_ranks: int, dtype: str
) -> None:
    """Of each rank's sum, of the sums of some ranks and of all: 1/7 rounds in float32."""
    scenario = wide(num_ranks, dtype, accumulations=3)
    parts = everything(scenario, scenario.parameters[0], 0, 0)
    by_rank = parts.reshape(num_ranks, 3, -1)
    for exact_sums in (by_rank.sum(dim=1), parts.cumsum(dim=0)):
        sums = exact_sums.to(getattr(torch, dtype))
        assert torch.equal(sums * (1 / num_ranks), sums / num_ranks)
        assert exact(exact_sums / num_ranks, dtype)


def distinct_per_element(parts: torch.Tensor) -> bool:
    return all(len(set(column)) == len(column) for column in parts.T.tolist())


@pytest.mark.long
@settings(max_examples=10)
@given(scenarios(), st.data())
def test_contributions_are_whole_divisible_distinct_and_of_one_sign(
    scenario: Scenario, data: st.DataObject
) -> None:
    """3 ranks average: a third of each is a whole number. bfloat16 cannot tell all apart."""
    rank = data.draw(st.integers(0, scenario.mesh.num_ranks - 1))
    for spec in scenario.parameters:
        values = contribution(scenario, spec, rank=rank, step=0, micro_batch=0)
        assert values.dtype == torch.float64
        assert tuple(values.shape) == local_shape(scenario.mesh, spec, rank)
        count = len(contributing_ranks(scenario.mesh, spec, rank))
        odd = count // math.gcd(count, 2**10)
        for step in range(scenario.num_steps):
            parts = everything(scenario, spec, rank, step)
            assert not parts.remainder(odd).any()
            assert not ((parts > 0).any(0) & (parts < 0).any(0)).any()
            assert parts.all() or spec.gradient == ZERO
            if "bfloat16" not in {spec.dtype, spec.effective_grad_dtype}:
                assert distinct_per_element(parts)


def test_the_first_and_the_third_of_cancelling_contributions_cancel() -> None:
    spec = ParameterSpec("p0", (4,), ("R",), gradient="cancelling")
    scenario = Scenario(MeshSpec((1,), ("dp",)), (spec,), (3,), 64)
    first, second, third = everything(scenario, spec, 0, 0)
    assert torch.stack((first, second)).all()
    assert torch.equal(first, -third)


def test_bfloat16_contributions_are_distinct_as_far_as_256_reaches() -> None:
    """1 + ... + 22 = 253; and 3 x (1 + ... + 9) = 135, for a mean over 3 ranks."""
    for num_ranks, accumulations in ((4, 4), (3, 3), (2, 4), (1, 4), (2, 11)):
        scenario = wide(num_ranks, accumulations=accumulations)
        parts = everything(scenario, scenario.parameters[0], 0, 0)
        assert distinct_per_element(parts), (num_ranks, accumulations)


def test_numbers_of_each_step_and_parameter_are_the_same_in_every_version() -> None:
    specs = tuple(ParameterSpec(f"p{i}", (5,), ("R",)) for i in range(3))
    scenario = Scenario(MeshSpec((2,), ("dp",)), specs, (2, 2), 64)
    numbers = contribution(scenario, specs[2], rank=1, step=1, micro_batch=0)
    assert numbers.tolist() == [-5922, -4863, 15346, -14406, -15514]


def test_writes_of_a_caller_change_no_later_contribution() -> None:
    scenario = wide(2)
    given = {"rank": 0, "step": 0, "micro_batch": 0}
    first = contribution(scenario, scenario.parameters[0], **given)
    kept = first.clone()
    first.zero_()
    assert kept.any()
    assert contribution(scenario, scenario.parameters[0], **given).equal(kept)


@pytest.mark.parametrize(
    ("num_ranks", "dtype", "accumulations", "expected"),
    [
        (2, "float32", 2, [11612, -11174, -10503, 1412, 15134, 6990]),
        (3, "bfloat16", 3, [9, -27, -3, 12, 27, 9]),
        (64, "bfloat16", 4, [1, -1, -1, 1, 1, 1]),
        (6, "float16", 2, [87, -57, -51, 21, 27, 81]),
    ],
)
def test_numbers_are_the_same_in_every_run_and_version(
    num_ranks: int, dtype: str, accumulations: int, expected: list[int]
) -> None:
    """A replayed token shows the numbers of the report that it was taken from."""
    scenario = wide(num_ranks, dtype, accumulations)
    (spec,) = scenario.parameters
    last = accumulations - 1
    numbers = contribution(scenario, spec, rank=1, step=0, micro_batch=last)
    assert numbers.tolist()[:6] == expected


@pytest.mark.parametrize("backward", [w for w, row in BACKWARDS.items() if row.halves])
def test_a_quarter_of_a_contribution_is_whole(backward: str) -> None:
    scenario = replace(wide(2, "float32"), backward=backward)
    parts = everything(scenario, scenario.parameters[0], 0, 0)
    assert not parts.remainder(4).any()
    assert parts.remainder(8).any()


@pytest.mark.slow
@pytest.mark.parametrize("num_ranks", [9, 259])
def test_every_rank_of_a_wide_world_contributes_somewhere(num_ranks: int) -> None:
    scenario = wide(num_ranks)
    parts = everything(scenario, scenario.parameters[0], 0, 0)
    assert parts.any(dim=0).all()
    by_rank = parts.reshape(num_ranks, -1).any(dim=1)
    assert by_rank.all()


@pytest.mark.parametrize(("num_ranks", "accumulations"), [(4, 3), (7, 1)])
def test_contributors_are_linearly_independent(
    num_ranks: int, accumulations: int
) -> None:
    """With as many elements as contributors, how often each came can be solved for."""
    scenario = wide(num_ranks, "float32", accumulations)
    parts = everything(scenario, scenario.parameters[0], 0, 0)
    count = len(parts)
    assert torch.linalg.matrix_rank(parts[:, :count]) == count


@pytest.mark.parametrize("gradient", ["nan", ZERO])
def test_a_parameter_has_its_special_gradient_in_every_other_step(
    gradient: str,
) -> None:
    spec = ParameterSpec("p0", (3,), ("R",), gradient=gradient)
    scenario = Scenario(MeshSpec((2,), ("dp",)), (spec,), (1, 1, 1), 2**20)
    shown = [shows_special_values(scenario, spec, step) for step in range(3)]
    assert shown == [True, False, True]
