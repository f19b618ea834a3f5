"""Megatron-core's DistributedDataParallel, and its gradient buffers, as a subject."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any
from unittest.mock import patch

import torch
import torch.distributed as dist
from torch.distributed.device_mesh import init_device_mesh
from typing_extensions import override

from syncverify.subjects.adapters import LossModule, ModuleAdapter
from syncverify.subjects.missing_package import missing_package

SUBJECTS = {"megatron": "MegatronSubject", "megatron-shards": "ShardedMegatronSubject"}
PACKAGE = "megatron-core"

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
        config = DistributedDataParallelConfig(
            overlap_grad_reduce=True, bucket_size=self.bucket_numel, **self.options()
        )
        with _current_device(device):
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


@contextmanager
def _current_device(device: torch.device) -> Iterator[None]:
    """Make Megatron allocate on the device of the parameters, for the length of a block.

    Megatron asks `torch.cuda.current_device()` for the device. The patch holds for the whole
    process, and is safe on `sim`: Megatron's constructor issues no collective, so no other
    rank gets a turn inside of the block.
    """
    with patch.object(torch.cuda, "current_device", lambda: device):
        yield
