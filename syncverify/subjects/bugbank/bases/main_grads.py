"""Gradients are collected in buckets outside of `.grad`.

A hook moves each micro-batch's gradient from `.grad` into the parameter's slot of a
bucket. `wait()` reduces bucket after bucket and hands the slots back as `.grad`.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from functools import partial

import torch
import torch.distributed as dist
from torch import nn
from typing_extensions import override

from syncverify.scenario.contract import Capabilities
from syncverify.subjects.bugbank.bases.managed import Managed
from syncverify.subjects.bugbank.bases.placements import (
    Groups,
    grad_dtype,
    like,
    local,
    local_bytes,
    local_grad,
    reduce_groups,
    slices,
)


class Bucket:
    """A flat buffer with one slot a parameter."""

    def __init__(
        self, parameters: list[nn.Parameter], groups: Groups, dtype: torch.dtype
    ) -> None:
        device, numel = parameters[0].device, sum(local(p).numel() for p in parameters)
        self.buffer = torch.zeros(numel, dtype=dtype, device=device)
        self.slots = dict(slices(self.buffer, parameters))
        self.groups = groups


class MainGrads(Managed):
    """Sums over the ranks."""

    def bind(self) -> None:
        """Make buckets and hooks."""
        self.buckets = [
            Bucket(members, self.groups_of(members[0]), self.dtype_of(members[0]))
            for members in self.plan()
        ]
        # Number of gradients of this step that were moved into the slot of each parameter.
        self.moved: dict[nn.Parameter, int] = {}
        for bucket in self.buckets:
            for parameter, slot in bucket.slots.items():
                self.register(parameter, partial(self.on_accumulated, slot))
                self.moved[parameter] = 0

    def kind_of(self, parameter: nn.Parameter) -> tuple[object, ...]:
        """Return the key that all parameters of one bucket share."""
        return parameter.dtype, grad_dtype(parameter), self.groups_of(parameter)

    def groups_of(self, parameter: nn.Parameter) -> Groups:
        """List the groups over which to sum."""
        return reduce_groups(parameter)

    def dtype_of(self, parameter: nn.Parameter) -> torch.dtype:
        """Return the dtype in which to sum."""
        return grad_dtype(parameter)

    def plan(self) -> Iterator[list[nn.Parameter]]:
        """Sort parameters by key, then cut at the cap."""
        kinds: dict[object, list[nn.Parameter]] = {}
        for parameter in self.trainable():
            kinds.setdefault(self.kind_of(parameter), []).append(parameter)
        for parameters in kinds.values():
            members: list[nn.Parameter] = []
            for parameter in parameters:
                members.append(parameter)
                if sum(map(local_bytes, members)) >= self.cap_bytes:
                    yield members
                    members = []
            if members:
                yield members

    def on_accumulated(self, slot: torch.Tensor, parameter: nn.Parameter) -> None:
        """Move a gradient into its slot."""
        gradient = local_grad(parameter)
        if self.moved[parameter] == 0:
            slot.copy_(gradient)
        else:
            slot.add_(gradient)
        parameter.grad = None
        self.moved[parameter] += 1

    def wait(self) -> None:
        """Reduce bucket after bucket, and hand gradients back."""
        for bucket in self.buckets:
            self.reduce(bucket)
            for parameter, slot in bucket.slots.items():
                parameter.grad = like(parameter, slot.to(grad_dtype(parameter)))

    def reduce(self, bucket: Bucket) -> None:
        """Sum a bucket over its groups."""
        for group in bucket.groups:
            dist.all_reduce(bucket.buffer, group=group)

    def zero_grad(self) -> None:
        """Start over: the next gradients overwrite the slots."""
        for parameter in self.moved:
            self.moved[parameter] = 0
            parameter.grad = None

    @override
    def unbind(self) -> None:
        super().unbind()
        for parameter in self.moved:
            parameter.grad = None
        self.buckets, self.moved = [], {}


class AveragedMainGrads(MainGrads):
    """Divides by the number of ranks that contributed."""

    capabilities = Capabilities(reduction="mean", varying_accumulations=True)

    @override
    def reduce(self, bucket: Bucket) -> None:
        super().reduce(bucket)
        bucket.buffer.div_(self.divisor(bucket))

    def divisor(self, bucket: Bucket) -> int:
        """Count the ranks that contribute to a bucket."""
        return math.prod(group.size() for group in bucket.groups)
