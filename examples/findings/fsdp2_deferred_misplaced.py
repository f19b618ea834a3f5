"""HSDP adds one parameter's gradient to another where the all-reduce is deferred.

    python examples/findings/fsdp2_deferred_misplaced.py

torch before 2.15 alone, two processes, CPU. Exits with 0 if it shows the defect. Each of two
micro-batches uses one of two parameters, and the second micro-batch all-reduces.
"""

import sys
import tempfile

import torch
import torch.distributed as dist
import torch.multiprocessing as mp
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard


class Model(torch.nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.weights = torch.nn.ParameterList([torch.zeros(1), torch.zeros(1)])

    def forward(self, used: int, factor: float) -> torch.Tensor:
        return (self.weights[used] * factor).sum()


def main(rank: int, store: str, queue) -> None:
    dist.init_process_group(
        "gloo", init_method=f"file://{store}", rank=rank, world_size=2
    )
    model = Model()
    mesh = init_device_mesh("cpu", (2, 1), mesh_dim_names=("replicate", "shard"))
    fully_shard(model, mesh=mesh)
    for used, factor, is_last in ((0, 2.0, False), (1, 4.0, True)):
        model.set_requires_all_reduce(is_last)
        model(used, factor).backward()
    gradients = [weight.grad for weight in model.weights]
    if rank == 0:
        queue.put(
            [each if each is None else each.full_tensor().item() for each in gradients]
        )
    dist.barrier()


if __name__ == "__main__":
    queue = mp.get_context("spawn").SimpleQueue()
    mp.spawn(main, (tempfile.mktemp(), queue), nprocs=2)
    first, second = queue.get()
    print("expected: gradients 2.0 and 4.0")
    print(f"actual:   {first} and {second}, no error")
    sys.exit((first, second) != (None, 6.0))
