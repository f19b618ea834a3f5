"""Buffers: their parameters, their earlier content, and the input of the collective."""

from collections.abc import Iterator

import pytest
import torch
from torch import nn
from torch.distributed.device_mesh import init_device_mesh

from syncverify.synchronizer import GradientSynchronizer, SynchronizerConfig
from tests.programs import accumulate, placed

POISON = 12345.0


def whole_buffer(gradient: torch.Tensor) -> torch.Tensor:
    """The buffer behind a gradient, with its padding."""
    return torch.tensor([]).set_(gradient.untyped_storage())


@pytest.fixture
def nan_in_new_memory() -> Iterator[None]:
    """Memory that is not written before it is read reads as nan."""
    torch.use_deterministic_algorithms(True)
    yield
    torch.use_deterministic_algorithms(False)


def test_whatever_was_written_to_the_buffer_is_gone_with_the_step() -> None:
    """Another use of the gradient buffer left its numbers for backward to add to.

    NVIDIA/Megatron-LM#4609, NVIDIA/Megatron-LM#6565
    """
    a, b = nn.Parameter(torch.zeros(3)), nn.Parameter(torch.zeros(5))
    with GradientSynchronizer([[a, b]], 1, 1) as synchronizer:
        for _ in range(2):
            accumulate(a, 2)
            accumulate(b, 3)
            synchronizer.wait()
            assert whole_buffer(a.grad).sum() == 3 * 2 + 5 * 3
            whole_buffer(a.grad).fill_(POISON)
            synchronizer.zero_grad()


@pytest.mark.usefixtures("nan_in_new_memory")
@pytest.mark.parametrize("unused", ["error", "keep_none"])
def test_a_new_buffer_is_zero_to_its_last_element(ranks, unused) -> None:
    """Memory that was never written was summed; padding and flags are summed as well.

    NVIDIA/Megatron-LM#6565
    """

    def program(_: int) -> float:
        a = placed(torch.zeros(3), init_device_mesh("cpu", (2,)))
        config = SynchronizerConfig(unused=unused)
        with GradientSynchronizer([[a]], 1, 1, config=config) as synchronizer:
            accumulate(a, 2)
            synchronizer.wait()
            num_flags = 2 * (unused == "keep_none")
            return whole_buffer(a.grad.to_local()).sum().item() - num_flags

    assert ranks.run(2, program) == [12, 12]


LAYOUTS = {
    "channels last": lambda: torch.zeros(2, 3, 4, 5).to(
        memory_format=torch.channels_last
    ),
    "transposed": lambda: torch.zeros(5, 3).t(),
    "with gaps": lambda: torch.zeros(8, 12)[:, ::2],
}


@pytest.mark.parametrize("layout", LAYOUTS)
def test_a_strided_gradient_is_reduced_in_place(ranks, layout) -> None:
    """A contiguous copy was reduced, and the gradient itself returned.

    NVIDIA/Megatron-LM#5337, NovaSky-AI/SkyRL#1886
    """

    def program(rank: int) -> None:
        mesh, local = init_device_mesh("cpu", (2,)), LAYOUTS[layout]()
        assert not local.is_contiguous()
        positions = torch.arange(float(local.numel())).view(local.shape)
        a, b = placed(local, mesh), placed(LAYOUTS[layout](), mesh)
        with GradientSynchronizer([[a, b]], 1, 1) as synchronizer:
            accumulate(a, positions * 10**rank)
            accumulate(b, positions * 10**rank)
            synchronizer.wait()
            assert torch.equal(a.grad.to_local(), positions * 11)
            assert torch.equal(b.grad.to_local(), positions * 11)
            assert a.grad.stride() == torch.empty_like(local).stride()

    ranks.run(2, program)
