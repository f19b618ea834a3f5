"""A training step with FSDP2 and tensor parallelism, on simulated ranks: no GPU is needed.

syncverify simulate examples/simulated_step.py:step --ranks 4
syncverify simulate examples/simulated_step.py:step_that_reads_early --ranks 4
"""

import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard
from torch.distributed.tensor.parallel import (
    ColwiseParallel,
    RowwiseParallel,
    parallelize_module,
)


def step() -> torch.Tensor:
    """Train a model that is split over `tp` and sharded over `dp`, for one step."""
    mesh = init_device_mesh("cuda", (2, 2), mesh_dim_names=("dp", "tp"))
    model = nn.Sequential(nn.Linear(8, 16), nn.ReLU(), nn.Linear(16, 8)).cuda()
    parallelize_module(
        model, mesh["tp"], {"0": ColwiseParallel(), "2": RowwiseParallel()}
    )
    fully_shard(model, mesh=mesh["dp"])
    (loss := model(torch.ones(4, 8, device="cuda")).sum()).backward()
    return loss


def step_that_reads_early() -> torch.Tensor:
    """Train for one step, and log the mean loss before its reduction is done."""
    loss = step().detach()
    work = dist.all_reduce(loss, op=dist.ReduceOp.AVG, async_op=True)
    logged = loss.clone()  # before `work.wait()`
    work.wait()
    return logged
