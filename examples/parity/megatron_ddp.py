"""Megatron-core's `DistributedDataParallel` with `finalize_model_grads`, tensor parallel size 1."""

import torch
from megatron.core.distributed import (
    DistributedDataParallel,
    DistributedDataParallelConfig,
    finalize_model_grads,
)
from megatron.core.process_groups_config import ProcessGroupCollection
from megatron.core.transformer import TransformerConfig
from torch import nn

layouts = ["dp=2,alone=1"]
CONFIG = TransformerConfig(num_layers=1, hidden_size=8, num_attention_heads=1)


def build():
    return nn.Sequential(nn.Linear(8, 16), nn.Tanh(), nn.Linear(16, 8)).cuda()


def parallelize(model, mesh):
    dp, alone = mesh.get_group("dp"), mesh.get_group("alone")
    others = dict.fromkeys(("tp", "pp", "ep", "expt_dp", "embd", "pos_embd"), alone)
    model.groups = ProcessGroupCollection(dp=dp, dp_cp=dp, **others)
    config = DistributedDataParallelConfig(overlap_grad_reduce=True)
    return DistributedDataParallel(CONFIG, config, model, pg_collection=model.groups)


def batch():
    return torch.randn(8, 8, device="cuda")


def loss(model, batch):
    return (model(batch) - batch).square().mean()


def step(model, batch, optimizer):
    model.zero_grad_buffer()
    loss(model, batch).backward()
    finalize_model_grads([model], pg_collection=model.module.groups)
    for each in model.parameters():
        each.grad = each.main_grad.to(each.dtype)
    optimizer.step()
    optimizer.zero_grad()
