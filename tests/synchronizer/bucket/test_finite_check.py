"""The rank and parameter of a NaN or an infinity, named before the optimizer spreads it."""

import math
from functools import partial

import pytest
import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.device_mesh import init_device_mesh

from syncverify.synchronizer import (
    GradientSynchronizer,
    NonFiniteGradientError,
    StepFailedError,
    SynchronizerConfig,
)
from tests.programs import accumulate, local, parameter

KIB_MB = 2**-10


def weights_of() -> dict[str, nn.Parameter]:
    """Make three parameters that are summed over ranks, in two buckets, and one that is not."""
    mesh = init_device_mesh("cpu", (dist.get_world_size(),))
    sizes = {"a": 256, "b": 64, "c": 64}
    shared = {name: parameter(mesh, numel=numel) for name, numel in sizes.items()}
    return shared | {"own": nn.Parameter(torch.zeros(3))}


def step(
    sums: GradientSynchronizer,
    weights: dict[str, nn.Parameter],
    bad: dict[str, tuple[int, float]],
) -> list[str]:
    """Bring gradients of ones, some with another value at an index; wait."""
    for name, each in weights.items():
        gradient = torch.ones(local(each).shape)
        if name in bad:
            index, value = bad[name]
            gradient[index] = value
        accumulate(each, gradient)
    try:
        sums.wait()
    except NonFiniteGradientError as error:
        return str(error).splitlines()
    return []


def run(ranks, bad_by_rank, **options) -> list[list[str]]:
    def program(rank: int) -> list[str]:
        weights = weights_of()
        with GradientSynchronizer(
            [list(weights.values())],
            KIB_MB,
            1,
            parameter_names={each: name for name, each in weights.items()},
            config=SynchronizerConfig(check_finite=True, **options),
        ) as sums:
            found = step(sums, weights, bad_by_rank[rank])
            if found:
                with pytest.raises(StepFailedError, match="that are not finite"):
                    sums.wait()
            sums.zero_grad()
            assert step(sums, weights, {}) == []
            assert sums.grad_norm(1).item() == 384 * 2 + 3
            return found

    return ranks.run(2, program)


OWN = (
    "this rank brought gradients that are not finite",
    "no NaN and no infinity in any gradient",
)
TOTAL = (
    "a sum is not finite, though all gradients of this rank are",
    "no NaN and no infinity on any rank, and no overflow in a sum",
)


def refusal(kind: tuple[str, str], rank: int, names: str, where: str) -> list[str]:
    headline, expected = kind
    return [
        headline,
        f"  expected: {expected}",
        f"  got:      some in {names}",
        f"  where:    rank {rank} of 2, {where}",
        f"  hint: {NonFiniteGradientError.hint}",
    ]


own, total = partial(refusal, OWN), partial(refusal, TOTAL)


@pytest.mark.parametrize(
    ("value", "index"), [(math.nan, 0), (math.inf, 40), (-math.inf, 0)]
)
def test_the_rank_that_brings_it_is_distinguished_from_the_others(
    ranks, value: float, index: int
) -> None:
    bad = {"b": (index, value), "a": (index, value)}
    assert run(ranks, [{}, bad]) == [
        total(0, "b, a", "bucket 1, bucket 2"),
        own(1, "b, a", "bucket 1, bucket 2"),
    ]


def test_a_gradient_that_is_not_summed_concerns_its_rank_alone(ranks) -> None:
    bad = [{"own": (2, math.nan)}, {}]
    assert run(ranks, bad) == [own(0, "own", "bucket 0"), []]


def test_opposite_infinities_are_found_on_both_ranks(ranks) -> None:
    bad = [{"c": (0, math.inf)}, {"c": (0, -math.inf)}]
    assert run(ranks, bad) == [own(0, "c", "bucket 1"), own(1, "c", "bucket 1")]


def test_an_overflow_in_a_sum_is_found(ranks) -> None:
    bad = [{"c": (9, 3e38)}, {"c": (9, 3e38)}]
    found = run(ranks, bad)
    assert found == [total(0, "c", "bucket 1"), total(1, "c", "bucket 1")]


def test_the_largest_numbers_are_finite(ranks) -> None:
    largest = torch.finfo(torch.float32).max
    bad = [{"a": (0, largest), "c": (3, -largest)}, {"a": (0, -largest)}]
    assert run(ranks, bad) == [[], []]


@pytest.mark.parametrize(("index", "owner"), [(0, 0), (200, 1)])
def test_of_scattered_sums_the_owner_learns_of_it(
    ranks, index: int, owner: int
) -> None:
    bad: list[dict[str, tuple[int, float]]] = [{}, {}]
    bad[0] = {"a": (index, math.nan)}
    expected = [own(0, "a", "bucket 2"), total(1, "a", "bucket 2") if owner else []]
    assert run(ranks, bad, mode="reduce_scatter") == expected
