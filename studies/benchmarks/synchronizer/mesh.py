"""One sum over two mesh axes: by the synchronizer, and by an all-reduce along each axis.

Only the reduction is timed: a backward leaves its gradient in the bucket, and `flush()`
and `wait()` reduce it, bookkeeping included. The peer calls `all_reduce` on a tensor of
the same size once for each axis, as DTensor's own redistribution would.
"""

import time
from typing import cast

import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.device_mesh import DeviceMesh, init_device_mesh
from torch.distributed.tensor import DTensor, Replicate, distribute_tensor

from studies.benchmarks.measure import Measure, ratio
from studies.benchmarks.rounds import Contestant, Rounds, Times, take_turns, timed
from studies.benchmarks.synchronizer.ranks import times_of_ranks
from studies.benchmarks.synchronizer.sizes import Sizes
from studies.benchmarks.synchronizer.steps import OURS
from syncverify.synchronizer import GradientSynchronizer

MESH_SHAPE = (2, 2)
SEQUENTIAL = "all-reduce an axis"
TARGETS = {"8MiB": 0.75, "4KiB": 1.0}
FLOAT32_BYTES = 4


def measure_mesh(sizes: Sizes, rounds: Rounds) -> list[Measure]:
    """Compare reductions of each size."""
    key = "mesh_vs_sequential"
    return [
        ratio((key, label), times, OURS, SEQUENTIAL, target=TARGETS[label])
        for label, times in times_of_ranks(4, _times_by_size, sizes, rounds).items()
    ]


def _times_by_size(sizes: Sizes, rounds: Rounds) -> dict[str, Times]:
    mesh = init_device_mesh("cpu", MESH_SHAPE, mesh_dim_names=("outer", "inner"))
    return {
        label: take_turns(
            {
                OURS: _synchronized(mesh, num_bytes // FLOAT32_BYTES),
                SEQUENTIAL: _sequential(mesh, num_bytes // FLOAT32_BYTES),
            },
            rounds,
            line_up=dist.barrier,
        )
        for label, num_bytes in sizes.mesh_bytes.items()
    }


def _synchronized(mesh: DeviceMesh, numel: int) -> Contestant:
    replicated = distribute_tensor(torch.ones(numel), mesh, [Replicate()] * mesh.ndim)
    parameter = nn.Parameter(replicated)
    # The synchronizer expects a second backward that never runs, so `flush()` starts the
    # sum, and not the hook.
    synchronizer = GradientSynchronizer([[parameter]], 1024, 2)
    synchronizer.bind()

    def run() -> float:
        synchronizer.zero_grad()
        cast("DTensor", parameter).to_local().sum().backward()
        dist.barrier()
        start = time.perf_counter()
        synchronizer.flush()
        synchronizer.wait()
        return time.perf_counter() - start

    return run


def _sequential(mesh: DeviceMesh, numel: int) -> Contestant:
    gradient = torch.zeros(numel)
    groups = mesh.get_all_groups()

    def reduce() -> None:
        for group in groups:
            dist.all_reduce(gradient, group=group)

    return timed(reduce)
