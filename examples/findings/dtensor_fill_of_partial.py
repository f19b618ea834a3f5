"""DTensor: a value that is written into a pending sum counts once for each rank.

    python examples/findings/dtensor_fill_of_partial.py

torch alone, two processes on a CPU. Exits with 0 if it shows it.
"""

import sys
import tempfile

import torch
import torch.distributed as dist
import torch.multiprocessing as mp
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.tensor import Shard, distribute_tensor
from torch.nn import functional


def set_first(x: torch.Tensor) -> torch.Tensor:
    total = x.sum(0)  # Partial(sum) where the rows are sharded
    total[0] = 9.0
    return total


def cosine(x: torch.Tensor) -> torch.Tensor:
    return functional.cosine_embedding_loss(
        x.t(), 2 * x.t(), torch.ones(1, device=x.device)
    )


def result(function, x: torch.Tensor) -> list | float | str:
    try:
        found = function(x)
        whole = found.full_tensor() if hasattr(found, "full_tensor") else found
        return [round(each, 3) for each in whole.reshape(-1).tolist()]
    except RuntimeError as error:
        return str(error).split(":", maxsplit=1)[0]


def main(rank: int, store: str, queue) -> None:
    dist.init_process_group(
        "gloo", init_method=f"file://{store}", rank=rank, world_size=2
    )
    mesh = init_device_mesh("cpu", (2,))
    for function, x in (
        (set_first, torch.tensor([[1.0, 2.0], [3.0, 4.0]])),
        (cosine, torch.tensor([[3.0], [4.0]])),
    ):
        actual = result(function, distribute_tensor(x, mesh, [Shard(0)]))
        queue.put((rank, result(function, x), actual))
    dist.barrier()


if __name__ == "__main__":
    queue = mp.get_context("spawn").SimpleQueue()
    mp.spawn(main, (tempfile.mktemp(), queue), nprocs=2)
    results = [queue.get() for _ in range(4)]
    filled, loss = (each[1:] for each in results if each[0] == 0)
    print(f"expected: {filled[0]}; cosine loss {loss[0]}")
    print(f"actual:   {filled[1]}; cosine loss {loss[1]}, no error")
    shown = [
        isinstance(found, list) and found != right for right, found in (filled, loss)
    ]
    sys.exit(not any(shown))
