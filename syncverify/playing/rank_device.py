"""The device of a process of a torchrun job."""

from __future__ import annotations

import os

import torch
import torch.distributed as dist

from syncverify.errors import EnvironmentNotSupportedError
from syncverify.scenario.settings import NCCL_NAMES


def own_device(
    transport: str, store: dist.Store, *, rank: int, world_size: int
) -> torch.device:
    """Return the device of this process: its GPU for NCCL, else the CPU.

    A process that sees one GPU uses that one, whatever its local rank: SLURM and other
    launchers show each process its own GPU alone. So all ranks compare the GPUs that they
    chose, in the store of the job.

    Raises:
        EnvironmentNotSupportedError: There is no GPU for this process, or two processes
            have the same one.
    """
    if transport not in NCCL_NAMES:
        return torch.device("cpu")
    local_rank, count = int(os.environ["LOCAL_RANK"]), torch.cuda.device_count()
    index = 0 if count == 1 else local_rank
    if index >= count:
        raise EnvironmentNotSupportedError(
            f"the {transport} backend needs one GPU per process: local rank {local_rank} of this "
            f"machine has none (it has {count}); lower --nproc-per-node"
        )
    gpu = str(torch.cuda.get_device_properties(index).uuid)
    _check_alone(transport, store, gpu, rank, world_size)
    return torch.device("cuda", index)


def _check_alone(
    transport: str, store: dist.Store, gpu: str, rank: int, world_size: int
) -> None:
    """Raise on every rank if two ranks have one GPU, which NCCL refuses much later."""
    store.set(f"gpu/{rank}", gpu)
    ranks: dict[str, list[int]] = {}
    for other in range(world_size):
        ranks.setdefault(store.get(f"gpu/{other}").decode(), []).append(other)
    for shared, users in ranks.items():
        if len(users) > 1:
            raise EnvironmentNotSupportedError(
                f"the {transport} backend needs one GPU per process: ranks {users} all have GPU "
                f"{shared}; lower --nproc-per-node, or show each process another GPU by "
                "CUDA_VISIBLE_DEVICES"
            )
