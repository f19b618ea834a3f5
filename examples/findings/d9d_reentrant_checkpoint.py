"""d9d 0.24: a weight that accumulates twice in one backward is reduced too early.

    pip install --no-deps d9d==0.24.0
    python examples/findings/d9d_reentrant_checkpoint.py

torch and d9d alone, two processes, CPU. Exits with 0 if it shows it.
"""

import sys
import tempfile

import no_cuda
import torch
import torch.distributed as dist
import torch.multiprocessing as mp
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.tensor import DTensor, Replicate
from torch.utils.checkpoint import checkpoint


def main(rank: int, store: str, queue) -> None:
    from d9d.internals.grad_sync import GradientSynchronizer

    no_cuda.install()
    dist.init_process_group(
        "gloo", init_method=f"file://{store}", rank=rank, world_size=2
    )
    mesh = init_device_mesh("cpu", (2,), mesh_dim_names=("dp",))
    weight = torch.nn.Parameter(DTensor.from_local(torch.zeros(1), mesh, [Replicate()]))
    synchronizer = GradientSynchronizer([[weight]], bucket_size_mb=1)
    synchronizer.set_required_accumulations(1)
    synchronizer.bind()

    def layer(x: torch.Tensor) -> torch.Tensor:
        return x + weight.to_local() * (rank + 1)  # adds 1 or 2 to the gradient

    x = torch.zeros(1, requires_grad=True)
    for _ in range(2):  # one weight, in two layers
        x = checkpoint(layer, x, use_reentrant=True)
    x.sum().backward()
    synchronizer.wait()
    queue.put((rank, weight.grad.to_local().item()))
    dist.barrier()


if __name__ == "__main__":
    queue = mp.get_context("spawn").SimpleQueue()
    mp.spawn(main, (tempfile.mktemp(), queue), nprocs=2)
    observed = dict(queue.get() for _ in range(2))
    print("expected: 6.0 on both ranks, or an error")
    print(f"actual:   {observed[0]} on rank 0, {observed[1]} on rank 1, no error")
    sys.exit(observed != {0: 4.0, 1: 5.0})
