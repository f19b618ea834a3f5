"""Sums over the wrong ranks, a wrong number of times, or in the wrong dtype."""

import torch
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.tensor import Replicate

from syncverify.synchronizer import GradientSynchronizer
from tests.programs import accumulate, parameter, value


def test_a_sum_over_two_axes_is_in_the_gradient_dtype(ranks) -> None:
    """One leg of two summed in bfloat16, in which 256 + 1 is 256.

    pytorch/pytorch#190627, NVIDIA/Megatron-LM#6624
    """

    def program(rank: int) -> float:
        mesh = init_device_mesh("cpu", (2, 2))
        a = parameter(mesh, Replicate(), Replicate(), dtype=torch.bfloat16)
        a.grad_dtype = torch.float32
        with GradientSynchronizer([[a]], 1, 1) as synchronizer:
            accumulate(a, 1 if rank else 256)
            synchronizer.wait()
            return value(a)

    assert ranks.run(4, program) == [259] * 4


def test_what_is_not_finite_reaches_all_ranks_and_nothing_else(ranks) -> None:
    """A gradient that overflowed was dropped, and the step with it, without a word.

    deepspeedai/DeepSpeed#8415
    """

    def program(rank: int) -> list[float]:
        a = parameter(init_device_mesh("cpu", (2,)), Replicate())
        b = parameter(init_device_mesh("cpu", (2,)), Replicate())
        with GradientSynchronizer([[a, b]], 1, 1) as synchronizer:
            first = 2.0 if rank else torch.inf
            accumulate(a, torch.tensor([first, 3.0, 4.0]))
            accumulate(b, 5)
            synchronizer.wait(scale=0.5)
            return a.grad.to_local().tolist() + b.grad.to_local().tolist()

    assert ranks.run(2, program) == [[torch.inf, 3, 4, 5, 5, 5]] * 2
