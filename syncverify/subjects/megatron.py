"""Megatron-core's DistributedDataParallel, and its gradient buffers, as a subject."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, nullcontext
from typing import Any, ClassVar
from unittest.mock import patch

import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.device_mesh import init_device_mesh
from typing_extensions import override

from syncverify.features import ALL_BEYOND
from syncverify.subject import Capabilities
from syncverify.subjects.ddp import LossModule

try:
    from megatron.core.distributed import (
        DistributedDataParallel,
        DistributedDataParallelConfig,
    )
    from megatron.core.process_groups_config import ProcessGroupCollection
    from megatron.core.transformer import TransformerConfig
except ModuleNotFoundError as error:
    raise ModuleNotFoundError(
        "megatron-core is missing; install it by `pip install --no-deps megatron-core==0.16.1`"
    ) from error

_BYTES_PER_ELEMENT = 4  # Megatron counts elements; its default is meant for float32


class MegatronSubject:
    """Gives Megatron-core's DDP the subject API.

    "The goal is to scale reduced gradients by 1/dp_size", says a comment in its source. It
    accumulates in `main_grad`, a view into its buffer, from which `wait()` lets readers of
    `.grad` read. `overlap_grad_reduce` starts in the second step, because Megatron learns
    in the first how often each parameter accumulates.

    Args:
        param_groups: Parameters by group; Megatron tells dtypes apart, not groups.
        bucket_size_mb: Bucket size in MiB of float32; Megatron counts elements.
        require_accumulations: Unused: Megatron learns of the last micro-batch from `no_sync`.

    Source:
        megatron/core/distributed/distributed_data_parallel.py and
        distributed_data_parallel_config.py, of megatron-core 0.16.1.
    """

    capabilities = Capabilities(
        outside=ALL_BEYOND,
        reduction="mean",
        tensors="local",
        separate_grad_dtype=False,
        varying_accumulations=True,
        needs_data=True,
    )
    options: ClassVar[Mapping[str, Any]] = {}

    def __init__(
        self,
        param_groups: list[list[nn.Parameter]],
        bucket_size_mb: float,
        require_accumulations: int,
    ) -> None:
        self._parameters = [parameter for group in param_groups for parameter in group]
        elements = int(bucket_size_mb * 2**20) // _BYTES_PER_ELEMENT
        self._config = DistributedDataParallelConfig(
            overlap_grad_reduce=True, bucket_size=max(1, elements), **self.options
        )
        self._module: Any = None

    def bind(self) -> None:
        """Allocate the buffers."""
        device = self._parameters[0].device
        groups = _process_groups(device)
        with _current_device(device):
            self._module = DistributedDataParallel(
                TransformerConfig(num_layers=1, hidden_size=1, num_attention_heads=1),
                self._config,
                LossModule(self._parameters),
                pg_collection=groups,
            )

    def run_micro_batch(
        self, compute_loss: Callable[[], torch.Tensor], *, is_last: bool
    ) -> None:
        """Run forward and backward, reducing in the last micro-batch only."""
        with nullcontext() if is_last else self._module.no_sync():
            loss: torch.Tensor = self._module(compute_loss)
            loss.backward()

    def wait(self) -> None:
        """Wait for all buckets, and show what is in them."""
        self._module.finish_grad_sync()
        for parameter in self._trainable():
            parameter.grad = parameter.main_grad  # type: ignore[attr-defined]  # Megatron's

    def zero_grad(self) -> None:
        """Clear the buffers."""
        self._module.zero_grad_buffer()
        for parameter in self._parameters:
            parameter.grad = None

    def unbind(self) -> None:
        """Take back what Megatron leaves on parameters: it has no call for it."""
        self._module.grad_accs.clear()
        self._module = None
        for parameter in self._trainable():
            del parameter.main_grad, parameter.grad_added_to_main_grad  # type: ignore[attr-defined]
            parameter.grad = None

    def _trainable(self) -> Iterator[nn.Parameter]:
        return (parameter for parameter in self._parameters if parameter.requires_grad)


class ShardedMegatronSubject(MegatronSubject):
    """Megatron's gradient buffers as its distributed optimizer has them reduced.

    `use_distributed_optimizer`: "issue reduce-scatter collectives to aggregate gradients".
    A rank's part of each bucket is right then, so `wait()` gathers the parts.
    """

    options: ClassVar[Mapping[str, Any]] = {"use_distributed_optimizer": True}

    @override
    def bind(self) -> None:
        originals = [parameter.data for parameter in self._parameters]
        super().bind()
        self._originals = originals

    @override
    def wait(self) -> None:
        super().wait()
        for group in self._module.bucket_groups:
            for bucket in group.buckets:
                part = bucket.grad_data.chunk(dist.get_world_size())[dist.get_rank()]
                dist.all_gather_into_tensor(bucket.grad_data, part.clone())

    @override
    def unbind(self) -> None:
        super().unbind()
        for parameter, data in zip(self._parameters, self._originals, strict=True):
            parameter.data = data  # Megatron had moved it into its buffer


def _process_groups(device: torch.device) -> ProcessGroupCollection:
    """Make all ranks one data-parallel group, and each of them alone in all others."""
    mesh = init_device_mesh(
        device.type, (dist.get_world_size(), 1), mesh_dim_names=("dp", "alone")
    )
    dp, alone = mesh.get_group("dp"), mesh.get_group("alone")
    groups = ProcessGroupCollection(
        dp=dp, dp_cp=dp, expt_dp=alone, tp=alone, pp=alone, ep=alone
    )
    return groups


@contextmanager
def _current_device(device: torch.device) -> Iterator[None]:
    """Have Megatron allocate where parameters are: it asks `torch.cuda`, and nobody else.

    No other rank of a process gets a turn inside: Megatron's constructor issues nothing.
    """
    with patch.object(torch.cuda, "current_device", lambda: device):
        yield
