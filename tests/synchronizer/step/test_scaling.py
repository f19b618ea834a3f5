"""Scaling gradients once they are reduced, with a factor that is known late."""

import math

import pytest
import torch
from torch import nn
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.tensor import Shard

from syncverify.synchronizer import (
    GradientSynchronizer,
    InvalidArgumentError,
    ReplacedGradientError,
)
from tests.programs import accumulate, lines, parameter, value


def plain(dtype: torch.dtype = torch.float32) -> nn.Parameter:
    return nn.Parameter(torch.zeros(3, dtype=dtype))


FACTORS = [0.25, torch.tensor(8), torch.tensor(2.0).double()]


@pytest.mark.parametrize("factor", FACTORS, ids=repr)
def test_the_scale_multiplies_reduced_and_local_gradients(ranks, factor) -> None:
    def program(rank: int) -> list[float]:
        mesh = init_device_mesh("cpu", (2,))
        shared = [parameter(mesh), parameter(mesh, Shard(0))]
        group = [*shared, plain(), plain(torch.bfloat16)]
        found = []
        with GradientSynchronizer([group], 1, 1) as synchronizer:
            for _ in range(2):
                for each in group:
                    accumulate(each, 2**rank)
                synchronizer.wait(scale=factor)
                found.append([value(each) / float(factor) for each in group])
                synchronizer.zero_grad()
        return found

    assert ranks.run(2, program) == [[[3, 1, 1, 1]] * 2, [[3, 2, 2, 2]] * 2]


def test_a_scale_is_not_rounded_to_the_gradient_dtype() -> None:
    a = plain(torch.bfloat16)
    factor = 1 + 2**-8  # 1 in bfloat16, and 258 * factor rounds to 260
    for given in (factor, torch.tensor(factor)):
        with GradientSynchronizer([[a]], 1, 1) as synchronizer:
            accumulate(a, 258)
            synchronizer.wait(scale=given)
            assert value(a) == torch.tensor(258 * factor).bfloat16().item()


def test_scale_grads_multiplies_after_wait_as_often_as_it_is_called() -> None:
    a = plain()
    with GradientSynchronizer([[a]], 1, 1) as synchronizer:
        accumulate(a, 3)
        synchronizer.wait(scale=2)
        synchronizer.wait()
        synchronizer.scale_grads(5)
        synchronizer.scale_grads(torch.tensor(0.5))
        assert value(a) == 15


def test_scale_grads_refuses_a_gradient_that_it_would_miss() -> None:
    a = plain()
    with GradientSynchronizer([[a]], 1, 1, parameter_names={a: "a"}) as synchronizer:
        accumulate(a, 3)
        synchronizer.wait()
        a.grad = torch.ones(3)
        with pytest.raises(ReplacedGradientError) as caught:
            synchronizer.scale_grads(2)
        first, expected, got, _, hint = lines(caught)
        assert first == "a gradient was replaced before scale_grads()"
        assert expected == "  expected: every .grad to be the view that was summed"
        assert got == "  got:      another .grad at a"
        assert hint == (
            "  hint: change .grad in place between wait() and scale_grads(), or assign to it "
            "after"
        )


NO_FACTORS = [math.nan, math.inf, True, "2", None, 1j]
NO_FACTORS += [torch.ones(1), torch.tensor(True), torch.tensor(1j)]
NO_FACTORS += [torch.tensor(math.nan)]


@pytest.mark.parametrize("factor", NO_FACTORS, ids=repr)
def test_what_cannot_multiply_gradients_is_refused_and_changes_nothing(factor) -> None:
    a = plain()
    with GradientSynchronizer([[a]], 1, 1) as synchronizer:
        accumulate(a, 3)
        if factor is not None:
            with pytest.raises(InvalidArgumentError):
                synchronizer.wait(scale=factor)
        synchronizer.wait()
        with pytest.raises(InvalidArgumentError) as caught:
            synchronizer.scale_grads(factor)
        assert lines(caught) == [
            "factor is not a finite number or a real tensor without dims",
            "  expected: a finite number or a real tensor without dims",
            f"  got:      factor={factor!r}",
            "  where:    rank 0 of 1",
            "  hint: see the docstring of GradientSynchronizer",
        ]
        assert value(a) == 3
