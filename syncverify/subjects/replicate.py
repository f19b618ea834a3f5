"""torch's two `replicate` functions; both are private, and no other module imports them."""

from collections.abc import Mapping
from typing import Any, ClassVar

import torch
import torch.distributed as dist
from torch import nn
from torch.distributed._composable.replicate import replicate
from torch.distributed._composable.replicate_with_fsdp import (
    replicate as replicate_as_fsdp,
)
from torch.distributed.device_mesh import init_device_mesh
from typing_extensions import override

from syncverify.subjects.adapters import LossModule
from syncverify.subjects.ddp import DistributedDataParallelSubject
from syncverify.subjects.fsdp2 import OPTIONS_WITHOUT_SHARDS, FullyShardedSubject
from syncverify.subjects.subject_options import SubjectOption

SUBJECTS = {"replicate": "ReplicateSubject", "replicate-fsdp": "ReplicateAsFsdpSubject"}


class ReplicateSubject(DistributedDataParallelSubject):
    """`replicate` of `torch/distributed/_composable/replicate.py`, over DDP's reducer.

    Its contract is DDP's, since it passes its options on to DDP. Its method
    `set_requires_gradient_sync` replaces `no_sync`, to "implement gradient accumulation
    without communication", as its docstring says.
    """

    @override
    def wrap(self, module: LossModule) -> Any:
        return replicate(module, bucket_cap_mb=self.bucket_size_mb)

    @override
    def announce(self, *, is_last: bool) -> None:
        self.wrapped.set_requires_gradient_sync(is_last)


class ReplicateAsFsdpSubject(FullyShardedSubject):
    """`replicate` of `replicate_with_fsdp.py`, in the same folder: FSDP2 without shards.

    It is an `FSDPModule` over a mesh of one axis, with the contract of `fully_shard`. Every
    rank has the whole mean.
    """

    takes_options: ClassVar[Mapping[str, SubjectOption]] = OPTIONS_WITHOUT_SHARDS

    @override
    def _wrap(self, module: nn.Module, device: torch.device, number: int) -> None:
        mesh = init_device_mesh(device.type, (dist.get_world_size(),))
        replicate_as_fsdp(module, mesh=mesh, mp_policy=self._mp_policy())
