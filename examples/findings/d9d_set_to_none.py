"""d9d 0.24: after `optimizer.zero_grad()`, gradients stay local, silently.

    pip install --no-deps d9d==0.24.0
    python examples/findings/d9d_set_to_none.py

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


def main(rank: int, store: str, queue) -> None:
    from d9d.internals.grad_sync import GradientSynchronizer

    no_cuda.install()
    dist.init_process_group(
        "gloo", init_method=f"file://{store}", rank=rank, world_size=2
    )
    mesh = init_device_mesh("cpu", (2,), mesh_dim_names=("dp",))
    weight = torch.nn.Parameter(DTensor.from_local(torch.zeros(1), mesh, [Replicate()]))
    optimizer = torch.optim.SGD([weight], lr=0.0)
    synchronizer = GradientSynchronizer([[weight]], bucket_size_mb=1)
    synchronizer.set_required_accumulations(1)
    synchronizer.bind()
    gradients = []
    for _ in range(2):
        (weight.to_local() * (rank + 1)).sum().backward()  # 1 and 2
        synchronizer.wait()
        gradients.append(weight.grad.to_local().item())
        synchronizer.zero_grad()
        optimizer.zero_grad()  # torch's default: set_to_none=True
    queue.put((rank, gradients))
    dist.barrier()


if __name__ == "__main__":
    queue = mp.get_context("spawn").SimpleQueue()
    mp.spawn(main, (tempfile.mktemp(), queue), nprocs=2)
    observed = dict(queue.get() for _ in range(2))
    print("expected: 3.0 on both ranks in both steps, or an error")
    print(f"actual:   rank 0 {observed[0]}, rank 1 {observed[1]}, no error")
    sys.exit(observed != {0: [3.0, 1.0], 1: [3.0, 2.0]})
