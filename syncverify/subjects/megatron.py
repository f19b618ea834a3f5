"""Megatron-core's DistributedDataParallel, and its gradient buffers, as a subject."""

from dataclasses import replace
from typing import Any
from unittest.mock import patch

import torch
import torch.distributed as dist
from torch.distributed.device_mesh import init_device_mesh
from typing_extensions import override

from syncverify.subjects.adapters import LossModule, ModuleAdapter
from syncverify.subjects.built_in import missing_package

SUBJECTS = {
    "megatron": "MegatronSubject",
    "megatron-shards": "ShardedMegatronSubject",
    "megatron-training": "TrainingMegatronSubject",
}
PACKAGE = "megatron-core"
_INSTANCES = 2

try:
    from megatron.core.distributed import (
        DistributedDataParallel,
        DistributedDataParallelConfig,
    )
    from megatron.core.process_groups_config import ProcessGroupCollection
    from megatron.core.transformer import TransformerConfig
except ModuleNotFoundError as error:
    raise missing_package(PACKAGE, error) from error


class MegatronSubject(ModuleAdapter):
    """Gives Megatron-core's DDP the subject API.

    Megatron averages: "The goal is to scale reduced gradients by 1/dp_size", says a comment
    in its source. It accumulates in `main_grad`, a view into its buffer, and `wait()` sets
    `.grad` to this view. `overlap_grad_reduce` has an effect from the second step on:
    Megatron learns in the first step how often each parameter accumulates.

    Megatron has no call that removes its hooks and attributes, so they are removed for it.

    Megatron tells dtypes apart and not groups, measures buckets in elements, of float32 by
    default, and learns of the last micro-batch from `no_sync`.

    Source:
        megatron/core/distributed/distributed_data_parallel.py and
        distributed_data_parallel_config.py, of megatron-core 0.19.2.
    """

    def options(self) -> dict[str, Any]:
        """Return the options of Megatron's config besides those of every subject."""
        return {}

    @override
    def wrap(self, module: LossModule) -> DistributedDataParallel:
        device = self.parameters[0].device
        groups = self.process_groups(device)
        options = {"bucket_size": self.bucket_numel, **self.options()}
        config = DistributedDataParallelConfig(overlap_grad_reduce=True, **options)
        # Megatron asks torch for the device on which it allocates. The patch holds for the whole
        # process, and is safe on `sim`: no other rank gets a turn here, since the constructor
        # issues no collective.
        with patch.object(torch.cuda, "current_device", lambda: device):
            return DistributedDataParallel(
                TransformerConfig(num_layers=1, hidden_size=1, num_attention_heads=1),
                config,
                module,
                pg_collection=groups,
            )

    def process_groups(self, device: torch.device) -> ProcessGroupCollection:
        """Make one data-parallel group of all ranks; every other group has one rank."""
        mesh = init_device_mesh(
            device.type, (dist.get_world_size(), 1), mesh_dim_names=("dp", "alone")
        )
        dp, alone = mesh.get_group("dp"), mesh.get_group("alone")
        return ProcessGroupCollection(
            dp=dp, dp_cp=dp, expt_dp=alone, tp=alone, pp=alone, ep=alone
        )

    @override
    def synchronize(self) -> None:
        """Wait for all buckets, and set each `.grad` to its view of a bucket."""
        self.wrapped.finish_grad_sync()
        for parameter in self.trainable():
            parameter.grad = parameter.main_grad  # type: ignore[attr-defined]  # Megatron's

    @override
    def zero_grad(self) -> None:
        self.wrapped.zero_grad_buffer()
        for parameter in self.parameters:
            parameter.grad = None


class ShardedMegatronSubject(MegatronSubject):
    """Megatron's gradient buffers, reduced for its distributed optimizer.

    `use_distributed_optimizer`: "issue reduce-scatter collectives to aggregate gradients".
    Each rank then has the right sum in its part of a bucket only, so `synchronize()`
    gathers the parts.
    """

    @override
    def options(self) -> dict[str, Any]:
        return {"use_distributed_optimizer": True}

    @override
    def synchronize(self) -> None:
        super().synchronize()
        owners = self.wrapped.intra_dp_cp_group
        for group in self.wrapped.bucket_groups:
            for bucket in group.buckets:
                part = bucket.grad_data.chunk(owners.size())[owners.rank()]
                dist.all_gather_into_tensor(bucket.grad_data, part.clone(), owners)


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
        count = {"num_distributed_optimizer_instances": _num_instances()}
        return super().options() | count

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
        shape = count, dist.get_world_size() // count
        names = "instances", "shards"
        mesh = init_device_mesh(device.type, shape, mesh_dim_names=names)
        groups.intra_dp_cp = mesh.get_group("shards")
        groups.inter_dist_opt = mesh.get_group("instances")
        groups.intra_expt_dp = groups.expt_dp
        return groups


def _num_instances() -> int:
    return 1 if dist.get_world_size() % _INSTANCES else _INSTANCES
