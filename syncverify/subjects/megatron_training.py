"""Megatron-core's DistributedDataParallel, wrapped as Megatron's own training loop wraps it."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import torch
import torch.distributed as dist
from torch.distributed.device_mesh import init_device_mesh
from typing_extensions import override

from syncverify.subjects.adapters import LossModule
from syncverify.subjects.megatron import ShardedMegatronSubject

SUBJECTS = {"megatron-training": "TrainingMegatronSubject"}
PACKAGE = "megatron-core"

_INSTANCES = 2


class TrainingMegatronSubject(ShardedMegatronSubject):
    """Gives the subject API to DDP as `get_model` of megatron/training/training.py wraps it.

    The wrapping runs on a side stream. That stream first waits for the current one, and the
    current one waits for it afterwards. Two instances of the distributed optimizer share the ranks
    (`--num-distributed-optimizer-instances 2`): gradients are reduce-scattered inside of an
    instance, and then all-reduced between instances, on a stream of Megatron's own. Worlds of
    odd size have one instance.

    Source:
        `get_model` of megatron/training/training.py, which is no part of the package
        megatron-core; distributed_data_parallel_config.py of megatron-core 0.19.2.
    """

    capabilities = replace(ShardedMegatronSubject.capabilities, takes_cuda_streams=True)

    @override
    def options(self) -> dict[str, Any]:
        instances = {"num_distributed_optimizer_instances": _num_instances()}
        return {**super().options(), **instances}

    @override
    def wrap(self, module: LossModule) -> Any:
        """Wrap on a side stream, ordered after and before the current one."""
        side_stream = torch.cuda.Stream()
        side_stream.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(side_stream):
            wrapped = super().wrap(module)
        torch.cuda.current_stream().wait_stream(side_stream)
        return wrapped

    @override
    def process_groups(self, device: torch.device) -> Any:
        """Split the ranks of the data-parallel group into instances."""
        groups = super().process_groups(device)
        count = _num_instances()
        mesh = init_device_mesh(
            device.type,
            (count, dist.get_world_size() // count),
            mesh_dim_names=("instances", "shards"),
        )
        groups.intra_dp_cp = mesh.get_group("shards")
        groups.inter_dist_opt = mesh.get_group("instances")
        groups.intra_expt_dp = groups.expt_dp
        return groups


def _num_instances() -> int:
    return 1 if dist.get_world_size() % _INSTANCES else _INSTANCES
