"""HSDP sums micro-batches in `reduce_dtype` where the all-reduce is deferred.

    python examples/findings/fsdp2_deferred_sums.py

torch alone, two processes, CPU. Exits with 0 if it shows it. The gradients of the three
micro-batches, 256, 1 and -256, and their sum are exact in bfloat16; 257 is not.
"""

import sys
import tempfile

import torch
import torch.distributed as dist
import torch.multiprocessing as mp
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import MixedPrecisionPolicy, fully_shard


def gradient(*, deferred: bool) -> float:
    """Return the float32 gradient of a weight after three micro-batches."""
    model = torch.nn.Linear(1, 1, bias=False)
    fully_shard(
        model,
        mesh=init_device_mesh("cpu", (2, 1), mesh_dim_names=("replicate", "shard")),
        mp_policy=MixedPrecisionPolicy(reduce_dtype=torch.bfloat16),
    )
    for value in (256.0, 1.0, -256.0):
        model.set_requires_all_reduce(not deferred or value == -256.0)
        model(torch.full((1, 1), value)).sum().backward()
    return model.weight.grad.full_tensor().item()


def main(rank: int, store: str, queue) -> None:
    dist.init_process_group(
        "gloo", init_method=f"file://{store}", rank=rank, world_size=2
    )
    results = gradient(deferred=False), gradient(deferred=True)
    if rank == 0:
        queue.put(results)
    dist.barrier()


if __name__ == "__main__":
    queue = mp.get_context("spawn").SimpleQueue()
    mp.spawn(main, (tempfile.mktemp(), queue), nprocs=2)
    each, deferred = queue.get()
    print("expected: gradient 1.0, which is 256 + 1 - 256")
    print(
        f"actual:   {each} if each micro-batch is all-reduced, {deferred} if the last is"
    )
    sys.exit((each, deferred) != (1.0, 0.0))
