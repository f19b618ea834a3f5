"""FSDP2 divides twice by `set_gradient_divide_factor` where a shard group has one rank.

    python examples/findings/fsdp2_divides_twice.py

torch alone, two processes, CPU. Exits with 0 if it shows the defect. The mesh replicates over
two ranks and shards over one.
"""

import sys
import tempfile

import torch
import torch.distributed as dist
import torch.multiprocessing as mp
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import MixedPrecisionPolicy, fully_shard


def gradient(reduce_dtype: torch.dtype, *, sums: bool) -> float:
    """Return the weight's gradient, a sum of 8 over two ranks that is to be divided by 2."""
    model = torch.nn.Linear(1, 1, bias=False)
    fully_shard(
        model,
        mesh=init_device_mesh("cpu", (2, 1), mesh_dim_names=("replicate", "shard")),
        mp_policy=MixedPrecisionPolicy(reduce_dtype=reduce_dtype),
    )
    model.set_gradient_divide_factor(2.0)
    model.set_force_sum_reduction_for_comms(sums)
    model(torch.full((1, 1), 4.0)).sum().backward()
    return model.weight.grad.full_tensor().item()


def main(rank: int, store: str, queue) -> None:
    dist.init_process_group(
        "gloo", init_method=f"file://{store}", rank=rank, world_size=2
    )
    results = (
        gradient(torch.float32, sums=False),
        gradient(torch.float32, sums=True),
        gradient(torch.float16, sums=False),
    )
    if rank == 0:
        queue.put(results)
    dist.barrier()


if __name__ == "__main__":
    queue = mp.get_context("spawn").SimpleQueue()
    mp.spawn(main, (tempfile.mktemp(), queue), nprocs=2)
    default, sums, float16 = queue.get()
    print("expected: gradient 4.0, which is the sum of 4 and 4, divided by 2")
    print(
        f"actual:   {default} by default, {sums} with forced sums, "
        f"{float16} with reduce_dtype=float16; no error"
    )
    sys.exit((default, sums, float16) != (4.0, 2.0, 2.0))
