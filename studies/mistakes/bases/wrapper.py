"""A wrapper of a module in the style of DDP: gradients are averaged while backward runs."""

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from functools import partial
from typing import Any

import torch
import torch.distributed as dist
from torch import nn
from torch.utils.hooks import RemovableHandle
from typing_extensions import override

from syncverify.subjects.adapters import LOCAL_MEAN, LossModule, ModuleAdapter


class Bucket:
    """A flat buffer, into which the gradients of some parameters are copied."""

    def __init__(self, parameters: list[nn.Parameter]) -> None:
        self.parameters = parameters
        self.pending = len(parameters)
        self.work: dist.Work | None = None
        self.views: dict[nn.Parameter, torch.Tensor] = {}
        first, numel = parameters[0], sum(p.numel() for p in parameters)
        self.buffer = torch.zeros(numel, dtype=first.dtype, device=first.device)
        offset = 0
        for parameter in parameters:
            end = offset + parameter.numel()
            self.views[parameter] = self.buffer[offset:end].view_as(parameter)
            offset = end


class DataParallel(nn.Module):
    """Averages the gradients of a module over the ranks of a process group."""

    def __init__(
        self,
        module: nn.Module,
        process_group: dist.ProcessGroup | None = None,
        bucket_cap_mb: float = 25.0,
    ) -> None:
        super().__init__()
        self.module = module
        self.group = process_group or dist.group.WORLD
        self.num_ranks = dist.get_world_size(self.group)
        self.cap_bytes = int(bucket_cap_mb * 2**20)
        self.is_syncing = True
        self.buckets = [Bucket(parameters) for parameters in self.plan()]
        self.hooks: list[RemovableHandle] = []
        for bucket in self.buckets:
            for parameter in bucket.parameters:
                hook = partial(self.on_gradient, bucket)
                handle = parameter.register_post_accumulate_grad_hook(hook)
                self.hooks.append(handle)

    def plan(self) -> Iterator[list[nn.Parameter]]:
        """Cut the parameters of each dtype into buckets, the last parameter first."""
        trainable = [p for p in self.module.parameters() if p.requires_grad]
        for dtype in dict.fromkeys(parameter.dtype for parameter in trainable):
            members: list[nn.Parameter] = []
            num_bytes = 0
            for parameter in reversed([p for p in trainable if p.dtype == dtype]):
                if members and num_bytes + parameter.nbytes > self.cap_bytes:
                    yield members
                    members, num_bytes = [], 0
                members.append(parameter)
                num_bytes += parameter.nbytes
            yield members

    @override
    def forward(self, *inputs: Any) -> Any:
        """Run the module, and expect one gradient of each parameter."""
        for bucket in self.buckets:
            bucket.pending = len(bucket.parameters)
        return self.module(*inputs)

    @contextmanager
    def no_sync(self) -> Iterator[None]:
        """Accumulate gradients without averaging them."""
        was_syncing, self.is_syncing = self.is_syncing, False
        try:
            yield
        finally:
            self.is_syncing = was_syncing

    def on_gradient(self, bucket: Bucket, parameter: nn.Parameter) -> None:
        """Copy a gradient into its bucket, and launch a bucket that is complete."""
        if not self.is_syncing or parameter.grad is None:
            return
        bucket.views[parameter].copy_(parameter.grad)
        bucket.pending -= 1
        if bucket.pending == 0:
            self.launch(bucket)

    def launch(self, bucket: Bucket) -> None:
        """Start to average a bucket."""
        bucket.buffer.div_(self.num_ranks)
        bucket.work = dist.all_reduce(bucket.buffer, group=self.group, async_op=True)

    def finish(self) -> None:
        """Wait for all buckets, and copy the means back into the gradients."""
        for bucket in self.buckets:
            if bucket.work is not None:
                bucket.work.wait()
                bucket.work = None
            for parameter, view in bucket.views.items():
                if parameter.grad is not None:
                    parameter.grad.copy_(view)

    def remove_hooks(self) -> None:
        """Leave no hook on a parameter."""
        for handle in self.hooks:
            handle.remove()
        self.hooks.clear()


class DataParallelSubject(ModuleAdapter):
    """Gives the wrapper the methods of a subject."""

    capabilities = replace(LOCAL_MEAN, overlaps_backward=True, keeps_bucket_cap=True)

    @override
    def wrap(self, module: LossModule) -> DataParallel:
        return DataParallel(module, bucket_cap_mb=self.bucket_size_mb)

    @override
    def synchronize(self) -> None:
        self.wrapped.finish()

    @override
    def unwrap(self) -> None:
        self.wrapped.remove_hooks()
