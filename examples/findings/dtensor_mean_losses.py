"""DTensor: gradients of losses over a sharded batch are multiplied by the number of ranks.

    python examples/findings/dtensor_mean_losses.py

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

LOSSES = (
    functional.mse_loss,
    functional.huber_loss,
    functional.smooth_l1_loss,
    functional.binary_cross_entropy,
)
EVEN = [0.75, 0.0, 0.25, 0.5]  # two for each rank
UNEVEN = [0.75, 0.0, 0.25]  # two for rank 0, one for rank 1


def loss_and_gradient(loss, values: torch.Tensor, target: torch.Tensor) -> list:
    values.requires_grad_()
    result = loss(values, target)
    result.backward()
    return [
        each.full_tensor().tolist() if hasattr(each, "full_tensor") else each.tolist()
        for each in (result.detach(), values.grad)
    ]


def main(rank: int, store: str, queue) -> None:
    dist.init_process_group(
        "gloo", init_method=f"file://{store}", rank=rank, world_size=2
    )
    mesh = init_device_mesh("cpu", (2,))
    for loss in LOSSES:
        for batch in (EVEN, UNEVEN):
            both = [torch.tensor(batch), torch.zeros(len(batch))]
            shards = [distribute_tensor(each, mesh, [Shard(0)]) for each in both]
            expected = loss_and_gradient(loss, *both)
            actual = loss_and_gradient(loss, *shards)
            queue.put((rank, loss.__name__, expected, actual))
    dist.barrier()


if __name__ == "__main__":
    queue = mp.get_context("spawn").SimpleQueue()
    mp.spawn(main, (tempfile.mktemp(), queue), nprocs=2)
    results = [queue.get() for _ in range(4 * len(LOSSES))]
    results = [each[1:] for each in results if each[0] == 0]
    (_, *even), (_, *uneven) = results[:2]
    print(f"expected: gradient {even[0][1]}; uneven: loss {uneven[0][0]:.4f}")
    print(f"actual:   {even[1][1]}; uneven: loss {uneven[1][0]:.4f}, no error")
    wrong = [expected != actual for _, expected, actual in results]
    sys.exit(not all(wrong))
