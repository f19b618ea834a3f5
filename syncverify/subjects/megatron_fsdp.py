"""Megatron-FSDP, from the package megatron-fsdp, as a subject."""

from collections.abc import Mapping
from contextlib import AbstractContextManager, nullcontext
from dataclasses import replace
from types import SimpleNamespace
from typing import Any, ClassVar
from unittest.mock import patch

import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.device_mesh import init_device_mesh
from typing_extensions import override

from syncverify.subjects.adapters import LOCAL_MEAN, LossModule, ModuleAdapter
from syncverify.subjects.built_in import missing_package

SUBJECTS = {
    "megatron-fsdp": "MegatronFsdpSubject",
    "megatron-fsdp-whole": "WholeMegatronFsdpSubject",
}
PACKAGE = "megatron-fsdp"

try:
    from megatron_fsdp import fully_shard_model, param_and_grad_buffer
except ModuleNotFoundError as error:
    raise missing_package(PACKAGE, error) from error

# A check of the shapes of shards, which copies a tensor to a GPU by `.cuda()`; parameters are
# on the CPU here. It decides nothing but whether to raise.
param_and_grad_buffer.validate_uneven_dtensor = lambda _: None
# Each wrapping collects garbage, for memory of GPUs; half a second in a process that has torch.
param_and_grad_buffer.gc = SimpleNamespace(collect=lambda: 0)


class MegatronFsdpSubject(ModuleAdapter):
    """Gives `fully_shard_model` the subject API, with gradients sharded as in ZeRO-2.

    Megatron-FSDP averages over the ranks of its mesh. It reduces in every micro-batch where
    gradients are sharded, and `set_model_auto_sync` announces the last one. Each rank has the
    mean in its shard, so `synchronize()` gathers the shards.

    The parameters lie in a module inside of the wrapped one, as in most models: a release may
    not see backward through the outermost module itself.

    Source:
        `fully_shard_model` and `MegatronFSDP` of megatron-fsdp 0.6.1.
    """

    options: ClassVar[Mapping[str, Any]] = {"zero_dp_strategy": "optim_grads"}
    capabilities = replace(
        LOCAL_MEAN, takes_cuda_streams=True, reduces_each_micro_batch=True
    )

    @override
    def wrap(self, module: LossModule) -> Any:
        device = self.parameters[0].device
        mesh = init_device_mesh(
            device.type, (dist.get_world_size(), 1), mesh_dim_names=("dp", "tp")
        )
        # The number of a GPU is read, and then compared with `device` for a warning.
        with patch.object(torch.cuda, "current_device", lambda: 0):
            return fully_shard_model(
                nn.Sequential(module),
                device_mesh=mesh,
                dp_shard_dim="dp",
                tp_dim="tp",
                device=device,
                sync_model_each_microbatch=False,
                **self.options,
            )

    @override
    def announce(self, *, is_last: bool) -> None:
        self.wrapped.set_model_auto_sync(is_last)

    @override
    def no_sync(self) -> AbstractContextManager[Any]:
        return nullcontext()  # `announce()` says the same

    @override
    def synchronize(self) -> None:
        self.wrapped.finish_grad_sync()
        gradients = self.wrapped.param_and_grad_buffer.dist_main_grad
        for name, gradient in gradients.items():
            parameter = self.wrapped.raw_param[name]
            whole = self.gathered(gradient.to_local())
            parameter.grad = whole.view_as(parameter).to(parameter.dtype)

    def gathered(self, local: torch.Tensor) -> torch.Tensor:
        """Gather the shards of all ranks, which differ in size."""
        count = torch.tensor([local.numel()], device=local.device)
        counts = torch.empty(dist.get_world_size(), dtype=count.dtype).to(count)
        dist.all_gather_into_tensor(counts, count)
        largest = int(counts.max())
        padded = local.new_zeros(largest)
        padded[: local.numel()] = local.reshape(-1)
        every = local.new_empty(largest * dist.get_world_size())
        dist.all_gather_into_tensor(every, padded)
        shards = every.view(dist.get_world_size(), largest)
        return torch.cat([s[:n] for s, n in zip(shards, counts.tolist(), strict=True)])

    @override
    def zero_grad(self) -> None:
        self.wrapped.zero_grad_buffer()
        for parameter in self.parameters:
            parameter.grad = None


class WholeMegatronFsdpSubject(MegatronFsdpSubject):
    """Megatron-FSDP that shards nothing, and reduces after backward.

    "When overlap_grad_reduce is set to False, calls synchronous communication ops", says the
    docstring of `finish_grad_sync()`, so no micro-batch is announced.
    """

    options: ClassVar[Mapping[str, Any]] = {
        "zero_dp_strategy": "no_shard",
        "overlap_grad_reduce": False,
    }
    capabilities = replace(
        MegatronFsdpSubject.capabilities, reduces_each_micro_batch=False
    )

    @override
    def announce(self, *, is_last: bool) -> None:
        """Do nothing: `finish_grad_sync()` reduces, whatever came before."""

    @override
    def gathered(self, local: torch.Tensor) -> torch.Tensor:
        return local
