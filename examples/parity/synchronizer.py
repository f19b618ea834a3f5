"""Our `GradientSynchronizer`: sums over `dp` of weights that are split over `tp`."""

import torch
from torch import nn
from torch.distributed.tensor import DTensor, Replicate, Shard

from syncverify.synchronizer import GradientSynchronizer

layouts = ["dp=2,tp=2"]
micro_batches = (2,)


class Split(nn.Linear):
    """A layer whose input features are split over `tp`."""

    def forward(self, x):
        if not isinstance(self.weight, DTensor):
            return super().forward(x)
        mesh = self.weight.device_mesh["tp"]
        local = DTensor.from_local(self.weight.to_local(), mesh, [Shard(1)])
        x = DTensor.from_local(x, mesh, [Replicate()], run_check=False)
        return (x @ local.T).full_tensor() + self.bias.to_local()


def build():
    return nn.Sequential(nn.Tanh(), Split(8, 8)).cuda()


def parallelize(model, mesh):
    layer = model[1]
    part = layer.weight.chunk(mesh["tp"].size(), 1)[mesh.get_local_rank("tp")]
    weight = DTensor.from_local(
        part.detach().contiguous(), mesh, [Replicate(), Shard(1)]
    )
    bias = DTensor.from_local(layer.bias.detach(), mesh["dp"], [Replicate()])
    layer.weight, layer.bias = nn.Parameter(weight), nn.Parameter(bias)


def batch():
    return torch.randn(8, 8, device="cuda")


def loss(model, batch):
    return (model(batch) - batch).square().mean()


def step(model, micro_batches, mesh, optimizer):
    synchronizer = GradientSynchronizer.from_module(model, 1.0, len(micro_batches))
    synchronizer.bind()
    for part in micro_batches:
        (loss(model, part) / len(micro_batches)).backward()
    synchronizer.wait(scale=1 / mesh["dp"].size())
    optimizer.step()
    synchronizer.zero_grad()
    synchronizer.unbind()
