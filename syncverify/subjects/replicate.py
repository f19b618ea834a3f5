"""Both of torch's `replicate`, which are private: this module alone knows where they are."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import torch
import torch.distributed as dist
from torch import nn
from torch.distributed._composable.replicate import replicate
from torch.distributed._composable.replicate_with_fsdp import (
    replicate as replicate_as_fsdp,
)
from torch.distributed.device_mesh import init_device_mesh
from typing_extensions import override

from syncverify.features import ALL_BEYOND
from syncverify.subjects.ddp import DistributedDataParallelSubject, LossModule
from syncverify.subjects.fsdp2 import FullyShardedSubject


class ReplicateSubject(DistributedDataParallelSubject):
    """`replicate` of `torch/distributed/_composable/replicate.py`, over DDP's reducer.

    It promises what DDP does: it hands its options to one. Its `set_requires_gradient_sync`
    takes the place of `no_sync`, to "implement gradient accumulation without
    communication", as its docstring says.
    """

    capabilities = replace(
        DistributedDataParallelSubject.capabilities, outside=ALL_BEYOND
    )

    @override
    def _wrap(self, module: LossModule) -> None:
        self._replicated: nn.Module | None = replicate(
            module, bucket_cap_mb=self._bucket_size_mb
        )

    @override
    def run_micro_batch(
        self,
        compute_loss: Callable[[], Any],
        *,
        is_last: bool,
        run_backward: Callable[[Any], None] = torch.Tensor.backward,
    ) -> None:
        assert self._replicated is not None, "bind() comes first"
        self._replicated.set_requires_gradient_sync(is_last)  # type: ignore[operator]  # of replicate
        run_backward(self._replicated(compute_loss))

    @override
    def unbind(self) -> None:
        self._replicated = None


class ReplicateAsFsdpSubject(FullyShardedSubject):
    """`replicate` of `replicate_with_fsdp.py` there: FSDP2 that shards nothing.

    It is an `FSDPModule` over a mesh of one axis, and promises what `fully_shard` does,
    but for shards: every rank has the whole mean.
    """

    @override
    def _wrap(self, shell: nn.Module, device: torch.device, number: int) -> None:
        replicate_as_fsdp(
            shell, mesh=init_device_mesh(device.type, (dist.get_world_size(),))
        )
