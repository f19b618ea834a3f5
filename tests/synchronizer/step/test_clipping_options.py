"""Clipping with gradients of other stages, and with gradients that are not finite."""

import math

import pytest
import torch
import torch.distributed as dist
from torch import nn

from syncverify.synchronizer import (
    GradientSynchronizer,
    NonFiniteGradientError,
    SynchronizerConfig,
)

INF = math.inf


@pytest.mark.parametrize(("norm_type", "norm"), [(2, 13), (1, 19), (INF, 12)])
def test_gradients_of_other_stages_count(ranks, norm_type: float, norm: float) -> None:
    """Rank 0 has the gradients 3 and 4, and rank 1 has 12."""

    def program(rank: int) -> tuple[float, float, list[float]]:
        values = [[3.0, 4.0], [12.0]][rank]
        weight = nn.Parameter(torch.zeros(len(values)))
        stages = dist.group.WORLD
        # The job has a pipeline, and no data parallelism.
        config = SynchronizerConfig(allow_local_only=True)
        with GradientSynchronizer([[weight]], 1, 1, config=config) as synchronizer:
            (weight * torch.tensor(values)).sum().backward()
            synchronizer.wait()
            measured = synchronizer.grad_norm(norm_type, stages=stages)
            before = synchronizer.clip_grad_norm_(norm / 2, norm_type, stages=stages)
            return measured.item(), before.item(), weight.grad.tolist()

    for (measured, before, clipped), values in zip(
        ranks.run(2, program), ([3.0, 4.0], [12.0]), strict=True
    ):
        assert measured == before == pytest.approx(norm, rel=1e-12)
        assert clipped == pytest.approx([value / 2 for value in values], rel=1e-5)


@pytest.mark.parametrize("bad", [INF, math.nan])
def test_a_norm_that_is_not_finite_is_refused_with_the_option(
    one_rank, bad: float
) -> None:
    weight = nn.Parameter(torch.zeros(2))
    with GradientSynchronizer([[weight]], 1, 1) as synchronizer:
        (weight * torch.tensor([1.0, bad])).sum().backward()
        synchronizer.wait()
        with pytest.raises(NonFiniteGradientError, match="not finite"):
            synchronizer.clip_grad_norm_(1, error_if_nonfinite=True)
        assert weight.grad[0] == 1, "nothing has changed"
        synchronizer.clip_grad_norm_(1)
        synchronizer.zero_grad()
        (weight * 1).sum().backward()
        synchronizer.wait()
        synchronizer.clip_grad_norm_(1, error_if_nonfinite=True)
