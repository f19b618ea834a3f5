"""Megatron-core 0.16.1: a weight that accumulates more often than in the first step.

    pip install --no-deps megatron-core==0.16.1
    python examples/findings/megatron_more_accumulations.py

torch and Megatron alone, two processes, CPU. Exits with 0 if it shows it.
"""

import sys
import tempfile
import warnings

import no_cuda
import torch
import torch.distributed as dist
import torch.multiprocessing as mp
from torch.distributed.device_mesh import init_device_mesh
from torch.utils.checkpoint import checkpoint


class Model(torch.nn.Module):
    """One weight in a number of checkpointed layers."""

    def __init__(self) -> None:
        super().__init__()
        self.weight = torch.nn.Parameter(torch.zeros(1))

    def forward(self, factor: float, num_layers: int) -> torch.Tensor:
        x = torch.zeros(1, requires_grad=True)
        for _ in range(num_layers):
            x = checkpoint(lambda x: x + self.weight * factor, x, use_reentrant=True)
        return x.sum()


def main(rank: int, store: str, queue) -> None:
    warnings.simplefilter("ignore")
    from megatron.core.distributed import (
        DistributedDataParallel,
        DistributedDataParallelConfig,
    )
    from megatron.core.process_groups_config import ProcessGroupCollection
    from megatron.core.transformer import TransformerConfig

    no_cuda.install()
    dist.init_process_group(
        "gloo", init_method=f"file://{store}", rank=rank, world_size=2
    )
    mesh = init_device_mesh("cpu", (2, 1), mesh_dim_names=("dp", "alone"))
    dp, alone = mesh.get_group("dp"), mesh.get_group("alone")
    model = DistributedDataParallel(
        TransformerConfig(num_layers=1, hidden_size=1, num_attention_heads=1),
        DistributedDataParallelConfig(overlap_grad_reduce=True),
        Model(),
        pg_collection=ProcessGroupCollection(
            dp=dp, dp_cp=dp, expt_dp=alone, tp=alone, pp=alone, ep=alone
        ),
    )
    gradients = []
    for num_layers in (1, 2):
        model.zero_grad_buffer()
        model(2.0 * (rank + 1), num_layers).backward()  # 2 or 4, once a layer
        model.finish_grad_sync()
        gradients.append(model.module.weight.main_grad.item())
    queue.put((rank, gradients))
    dist.barrier()


if __name__ == "__main__":
    queue = mp.get_context("spawn").SimpleQueue()
    mp.spawn(main, (tempfile.mktemp(), queue), nprocs=2)
    observed = dict(queue.get() for _ in range(2))
    print("expected: 3.0 in step 0, 6.0 in step 1, on both ranks, or an error")
    print(f"actual:   rank 0 {observed[0]}, rank 1 {observed[1]}, no error")
    # The second accumulation races with the reduction: what comes out depends on timing.
    sys.exit(all(second == 6.0 for _, second in observed.values()))
