"""Large gradients are multiplied before the sum as they come, and others with their bucket."""

from typing import Any

import pytest
import torch
import torch.distributed as dist
from torch import nn

from synchronizer import (
    GradientSynchronizer,
    InFlightWriteError,
    LateAccumulationError,
    ReplacedGradientError,
    SynchronizerConfig,
)
from synchronizer.plan.wire_format import WireFormat
from syncverify import verify


@pytest.fixture(autouse=True)
def all_are_large(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("synchronizer.bucket.gradient_view.LARGE_BYTES", 0)


def make(numels: list[int]) -> tuple[GradientSynchronizer, list[nn.Parameter]]:
    config = SynchronizerConfig(
        process_group=dist.group.WORLD, process_group_reduction="avg", scaling="before"
    )
    group = [nn.Parameter(torch.zeros(numel)) for numel in numels]
    names = dict(zip(group, "abc", strict=False))
    return GradientSynchronizer(
        [group], 1, 1, parameter_names=names, config=config
    ), group


def backward(group: list[nn.Parameter], factor: float = 1) -> None:
    torch.stack([each.sum() for each in group]).sum().mul(factor).backward()


@pytest.mark.parametrize("set_to_none", [False, True])
def test_means_are_right_with_early_factors_and_without(ranks, set_to_none) -> None:
    """The first step learns; in the third a gradient of the user takes the place of one."""

    def program(rank: int) -> list[Any]:
        sums, group = make([3, 2, 4])
        found = []
        with sums:
            for step in range(3):
                if step == 2:
                    group[0].grad = torch.ones(3)
                backward(group, 4**rank)
                sums.wait(scale=2)
                found.append([each.grad.unique().item() for each in group])
                sums.zero_grad(set_to_none=set_to_none)
        return found

    mean = 2 * (1 + 4) / 2
    third = [mean + 2, mean, mean]
    assert ranks.run(2, program) == [[[mean] * 3, [mean] * 3, third]] * 2


def multiplied(sums: GradientSynchronizer, group: list[nn.Parameter]) -> None:
    """Bring a gradient to `b`, which is multiplied; its bucket waits for `a`."""
    backward(group)
    sums.wait()
    sums.zero_grad()
    backward(group[1:])
    assert group[1].grad.unique().item() == 0.5


def test_a_gradient_that_comes_after_the_factor_is_refused(two_ranks) -> None:
    sums, group = make([3, 3])
    with sums:
        multiplied(sums, group)
        with pytest.raises(LateAccumulationError) as caught, sums.no_sync():
            backward(group[1:])
    headline = "b accumulated a gradient after it was divided for the sum"
    assert str(caught.value).splitlines()[0] == headline


@pytest.mark.parametrize("is_replaced", [False, True])
def test_a_write_after_the_factor_is_refused(two_ranks, is_replaced) -> None:
    sums, group = make([3, 3])
    with sums:
        multiplied(sums, group)
        if is_replaced:
            group[1].grad = group[1].grad * 2
        else:
            group[1].grad.add_(1)
        with pytest.raises(
            ReplacedGradientError if is_replaced else InFlightWriteError
        ):
            backward(group[:1])


@pytest.mark.slow
def test_the_harness_finds_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    """With factors whose product is 1, so that sums stay sums."""
    halved = classmethod(lambda cls, dtype, **_: cls(dtype, 1, before=0.5, after=2.0))
    monkeypatch.setattr(WireFormat, "of", halved)
    verify("synchronizer", backend="sim", ranks=4, examples=20, seed=0)
