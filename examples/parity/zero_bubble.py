"""A zero-bubble pipeline, whose weight gradients fire no hook: `mark_ready` counts them."""

import torch
from torch import nn
from torch.distributed.pipelining import PipelineStage, ScheduleInterleavedZeroBubble
from torch.distributed.tensor import DTensor, Replicate
from torch.nn.functional import mse_loss

from syncverify.synchronizer import GradientSynchronizer

layouts, PARTS = ["dp=2,pp=2"], 4


class Layer(nn.Linear):
    def forward(self, x):
        weight = (
            self.weight.to_local() if isinstance(self.weight, DTensor) else self.weight
        )
        return torch.tanh(x @ weight.T)


def build():
    return nn.Sequential(*(Layer(8, 8, bias=False) for _ in range(4))).cuda()


def parallelize(model, mesh):
    for i, layer in enumerate(model):
        weight = DTensor.from_local(layer.weight.detach(), mesh["dp"], [Replicate()])
        layer.weight = nn.Parameter(weight)
        if i // 2 != mesh.get_local_rank("pp"):
            model[i] = nn.Identity()  # the names of others stay as they are


def batch():
    return torch.randn(8, 8, device="cuda")


def loss(model, batch):
    return mse_loss(model(batch), batch)


def step(model, batch, mesh, optimizer):
    own, group = mesh.get_local_rank("pp"), mesh.get_group("pp")
    synchronizer = GradientSynchronizer.from_module(model, 1.0, PARTS)
    synchronizer.bind()
    stage = PipelineStage(model, own, 2, batch.device, group=group)
    schedule = ScheduleInterleavedZeroBubble(
        [stage], PARTS, loss_fn=mse_loss, scale_grads=False
    )
    schedule.step(*([batch] if own == 0 else []), target=batch)
    for _ in range(PARTS if own else 0):  # the first stage runs whole backwards
        synchronizer.mark_ready(*model.parameters())
    synchronizer.wait(scale=1 / (PARTS * mesh["dp"].size()))
    optimizer.step()
    synchronizer.unbind()
    optimizer.zero_grad()
