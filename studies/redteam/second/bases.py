"""Small right synchronizers, of which the programs of the second red team are variants."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import torch
import torch.distributed as dist
from torch import nn
from typing_extensions import override

from syncverify.bugbank.bases.placements import (
    BYTES_PER_MB,
    Groups,
    grad_dtype,
    like,
    local,
    local_bytes,
    local_grad,
    reduce_groups,
    slices,
)
from syncverify.bugbank.bases.view_buckets import Bucket, ViewBuckets
from syncverify.scenario.contract import Capabilities

Sums = list[tuple[torch.Tensor, Groups, list[nn.Parameter]]]


class _Listed:
    """Knows the trainable parameters, each once."""

    def __init__(
        self,
        param_groups: list[list[nn.Parameter]],
        bucket_size_mb: float,
        require_accumulations: int,
    ) -> None:
        listed = [p for group in param_groups for p in group if p.requires_grad]
        self.parameters = [*dict.fromkeys(listed)]
        self.cap_bytes = bucket_size_mb * BYTES_PER_MB
        self.required = require_accumulations
        self.hooks: list[Any] = []

    def set_required_accumulations(self, count: int) -> None:
        """Change the number of micro-batches of a step."""
        self.required = count

    def bind(self) -> None:
        """Need nothing yet."""

    def zero_grad(self) -> None:
        """Drop gradients."""
        for parameter in self.parameters:
            parameter.grad = None

    def unbind(self) -> None:
        """Leave nothing behind."""
        for hook in self.hooks:
            hook.remove()
        self.zero_grad()


class Plain(_Listed):
    """Sums gradient after gradient in `wait()`."""

    def sum_over(self, part: torch.Tensor, group: dist.ProcessGroup) -> None:
        """Sum a local gradient over the ranks of a group."""
        dist.all_reduce(part, group=group)

    def wait(self) -> None:
        """Sum the gradients that exist."""
        for parameter in self.parameters:
            if parameter.grad is not None:
                part = local_grad(parameter).detach()
                for group in reduce_groups(parameter):
                    self.sum_over(part, group)


class Views(ViewBuckets):
    """Launches a bucket, of which gradients are views, when all of its gradients came."""

    buckets: list[Any]


class Streams(Views):
    """Reduces on a side stream, which forks from the caller's and is joined."""

    capabilities = Capabilities(takes_cuda_streams=True)

    @override
    def bind(self) -> None:
        self.comm = torch.cuda.Stream()
        super().bind()

    @override
    def launch(self, bucket: Bucket) -> None:
        self.comm.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(self.comm):
            super().launch(bucket)

    @override
    def wait(self) -> None:
        with torch.cuda.stream(self.comm):
            super().wait()
        torch.cuda.current_stream().wait_stream(self.comm)


class Main(_Listed):
    """Moves gradients into flat buckets, which `wait()` reduces and hands back."""

    def plan(self) -> Iterator[list[nn.Parameter]]:
        """Fill buckets of one dtype and set of groups up to the cap."""
        kinds: dict[object, list[nn.Parameter]] = {}
        for each in self.parameters:
            kinds.setdefault((grad_dtype(each), reduce_groups(each)), []).append(each)
        for members in kinds.values():
            bucket: list[nn.Parameter] = []
            for each in members:
                used = sum(local_bytes(other) for other in bucket)
                if bucket and used + local_bytes(each) > self.cap_bytes:
                    yield bucket
                    bucket = []
                bucket.append(each)
            yield bucket

    @override
    def bind(self) -> None:
        self.buckets: Sums = []
        self.slots: dict[nn.Parameter, torch.Tensor] = {}
        self.moved = dict.fromkeys(self.parameters, 0)
        for members in self.plan():
            dtype, device = grad_dtype(members[0]), members[0].device
            numel = sum(local(each).numel() for each in members)
            buffer = torch.zeros(numel, dtype=dtype, device=device)
            self.buckets.append((buffer, reduce_groups(members[0]), members))
            self.slots |= slices(buffer, members)
        for each in self.parameters:
            self.hooks.append(each.register_post_accumulate_grad_hook(self.move))

    def move(self, parameter: nn.Parameter) -> None:
        """Move a gradient into its slot."""
        gradient = local_grad(parameter).detach()
        if self.moved[parameter]:
            self.slots[parameter].add_(gradient)
        else:
            self.slots[parameter].copy_(gradient)
        parameter.grad = None
        self.moved[parameter] += 1

    def reduce(self, buffer: torch.Tensor, groups: Groups) -> None:
        """Sum a bucket."""
        for group in groups:
            dist.all_reduce(buffer, group=group)

    def wait(self) -> None:
        """Sum the buckets, and hand gradients out."""
        for buffer, groups, members in self.buckets:
            self.reduce(buffer, groups)
            for parameter in members:
                parameter.grad = like(parameter, self.slots[parameter])

    @override
    def zero_grad(self) -> None:
        super().zero_grad()
        self.moved = dict.fromkeys(self.parameters, 0)

    @override
    def unbind(self) -> None:
        super().unbind()
        self.hooks, self.buckets, self.slots = [], [], {}


class Ordinary(_Listed):
    """Averages ordinary gradients over all ranks in flat buckets of one dtype."""

    capabilities = Capabilities(
        reduction="mean", tensors="local", varying_accumulations=True
    )

    def gradients(self) -> Iterator[list[torch.Tensor]]:
        """List the gradients of each dtype."""
        kinds: dict[torch.dtype, list[torch.Tensor]] = {}
        for each in self.parameters:
            gradient = local_grad(each).detach()
            kinds.setdefault(gradient.dtype, []).append(gradient)
        yield from kinds.values()

    def plan(self) -> Iterator[list[torch.Tensor]]:
        """Fill buckets up to the cap."""
        for gradients in self.gradients():
            bucket: list[torch.Tensor] = []
            for gradient in gradients:
                used = sum(each.nbytes for each in bucket)
                if bucket and used + gradient.nbytes > self.cap_bytes:
                    yield bucket
                    bucket = []
                bucket.append(gradient)
            yield bucket

    def average(self, flat: torch.Tensor) -> None:
        """Average a bucket."""
        dist.all_reduce(flat)
        flat.div_(dist.get_world_size())

    def wait(self) -> None:
        """Average the buckets, and copy them back."""
        for gradients in self.plan():
            flat = torch.cat([g.reshape(-1) for g in gradients])
            self.average(flat)
            parts = flat.split([g.numel() for g in gradients])
            for gradient, part in zip(gradients, parts, strict=True):
                gradient.copy_(part.view(gradient.shape))


class Cube(nn.Module):
    """A layer with a weight of five dims, like that of a convolution over volumes."""

    def __init__(self) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.empty(3, 1, 2, 2, 2))
        self.bias = nn.Parameter(torch.empty(3))

    @override
    def forward(self, generator: torch.Generator) -> torch.Tensor:
        volumes = torch.randn(2, 1, 2, 2, 2, generator=generator).to(self.weight)
        result = nn.functional.conv3d(volumes, self.weight, self.bias)
        return result.square().mean().float()
