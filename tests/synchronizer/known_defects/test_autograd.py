"""Gradients that do not come the usual way, on ranks that sum them."""

import pytest
import torch
from torch.distributed.device_mesh import init_device_mesh

from syncverify.synchronizer import BucketNotReadyError, GradientSynchronizer
from tests.programs import placed


@pytest.mark.slow
def test_a_gradient_penalty_counts_once(ranks) -> None:
    """Differentiating without accumulating was taken for a backward, or broke the next.

    pytorch/pytorch#47562
    """

    def program(rank: int) -> list[list[float]]:
        a = placed(torch.ones(3), init_device_mesh("cpu", (2,)))
        found = []
        with GradientSynchronizer([[a]], 1, 1) as synchronizer:
            for _ in range(2):
                local = a.to_local()
                (slope,) = torch.autograd.grad(
                    (local**2 * 10**rank).sum(), a, create_graph=True
                )
                loss = (slope.to_local() * local).sum()  # of 2 * 10**rank * local**2
                loss.backward()
                synchronizer.wait()
                found.append(a.grad.to_local().tolist())
                synchronizer.zero_grad()
        return found

    assert ranks.run(2, program) == [[[44, 44, 44]] * 2] * 2


def test_a_gradient_that_was_not_accumulated_is_no_silent_loss(ranks) -> None:
    """A gradient that was computed apart, and written to `.grad`, was never reduced.

    pytorch/pytorch#47562, pytorch/pytorch#63740, NVIDIA/Megatron-LM#6693
    """

    def program(_: int) -> None:
        a = placed(torch.ones(3), init_device_mesh("cpu", (2,)))
        with GradientSynchronizer([[a]], 1, 1) as synchronizer:
            (slope,) = torch.autograd.grad(a.to_local().sum(), a)
            a.grad.copy_(slope)
            with pytest.raises(BucketNotReadyError):
                synchronizer.wait()
            a.grad = slope
            with pytest.raises(BucketNotReadyError):
                synchronizer.wait()

    ranks.run(2, program)
