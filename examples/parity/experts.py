"""Expert parallelism: each rank has its own rows, and one of the experts."""

import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.nn.functional import all_to_all_single

layouts = ["ep=2", "ep=4"]
split, own = ["ep"], {"experts": {"ep": 0}}


class Mixture(nn.Module):
    group = None

    def __init__(self):
        super().__init__()
        self.gate = nn.Linear(8, 4)
        self.experts = nn.Parameter(torch.randn(4, 8, 8))

    def forward(self, x):  # each expert gets all rows, weighted by the gate
        rows = torch.einsum("re,rw->erw", self.gate(x).softmax(-1), x).contiguous()
        if self.group is None:
            return (rows @ self.experts).tanh().sum(0)
        n, own = self.group.size(), len(self.experts)
        rows = all_to_all_single(torch.empty_like(rows), rows, group=self.group)
        rows = rows.view(n, own, len(x), 8).transpose(0, 1).reshape(own, -1, 8)
        made = (rows @ self.experts).tanh().view(own, n, len(x), 8).transpose(0, 1)
        made = made.reshape(4, len(x), 8)
        return all_to_all_single(torch.empty_like(made), made, group=self.group).sum(0)


def build():
    return Mixture().cuda()


def parallelize(model, mesh):
    group = model.group = mesh.get_group("ep")
    model.experts = nn.Parameter(
        model.experts.detach().chunk(group.size())[group.rank()]
    )


def batch():
    return torch.randn(8, 8, device="cuda")


def loss(model, batch):
    return (model(batch) - batch).square().mean()


def step(model, batch, mesh, optimizer):
    loss(model, batch).backward()
    for each in model.gate.parameters():
        dist.all_reduce(each.grad, group=model.group)
    for each in model.parameters():
        each.grad /= model.group.size()
    optimizer.step()
    optimizer.zero_grad()
