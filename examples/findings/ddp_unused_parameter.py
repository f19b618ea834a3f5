"""Where a parameter is unused, DDP leaves gradients of used ones unreduced, silently.

    python examples/findings/ddp_unused_parameter.py

torch alone, two processes, CPU. Exits with 0 if it shows it.
"""

import sys
import tempfile

import torch
import torch.distributed as dist
import torch.multiprocessing as mp
from torch.nn.parallel import DistributedDataParallel


class Model(torch.nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.used = torch.nn.Parameter(torch.zeros(1))
        self.unused = torch.nn.Parameter(torch.zeros(1))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return (self.used * x).sum()


def main(rank: int, store: str, queue) -> None:
    dist.init_process_group(
        "gloo", init_method=f"file://{store}", rank=rank, world_size=2
    )
    model = DistributedDataParallel(Model())
    model(torch.tensor([float(10 + 20 * rank)])).backward()  # 10 and 30
    queue.put((rank, model.module.used.grad.item()))
    dist.barrier()


if __name__ == "__main__":
    queue = mp.get_context("spawn").SimpleQueue()
    mp.spawn(main, (tempfile.mktemp(), queue), nprocs=2)
    observed = dict(queue.get() for _ in range(2))
    print("expected: used.grad == 20.0 on ranks 0 and 1, or an error")
    print(f"actual:   {observed[0]} on rank 0, {observed[1]} on rank 1, no error")
    sys.exit(observed != {0: 10.0, 1: 30.0})
