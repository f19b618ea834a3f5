"""Fuzz a tensor-parallel layer beside the whole layer: pytest examples/fuzz_layer.py."""

import torch
import torch.distributed as dist
from hypothesis import Phase, given, settings
from torch import nn

import syncverify
from syncverify.strategies import meshes, shapes


class RowParallelLinear(nn.Module):
    """A linear layer whose ranks hold slices of the input dim, and sum their products."""

    def __init__(self, whole: nn.Linear, rank: int, num_ranks: int) -> None:
        super().__init__()
        width = whole.in_features // num_ranks
        self.columns = slice(rank * width, (rank + 1) * width)
        self.weight = nn.Parameter(whole.weight[:, self.columns].detach().clone())

    def forward(self, inputs: torch.Tensor) -> torch.Tensor:
        total = inputs[..., self.columns] @ self.weight.T
        dist.all_reduce(total)
        return total


@settings(deadline=None, derandomize=True, phases=(Phase.generate, Phase.shrink))
@given(mesh=meshes(max_axes=1), shape=shapes(scalars=False))
def test_layer_equals_whole_layer(mesh, shape):
    torch.manual_seed(0)
    whole = nn.Linear(shape[-1], 3, bias=False)
    inputs = torch.randn(shape)

    def step(rank: int) -> torch.Tensor:
        layer = RowParallelLinear(whole, rank, mesh.num_ranks).cuda()
        return layer(inputs.cuda()).detach()

    simulation = syncverify.simulate(step, ranks=mesh.num_ranks)
    simulation.check()
    for result in simulation.results:
        torch.testing.assert_close(result, whole(inputs).detach())
