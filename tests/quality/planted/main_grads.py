"""Two correct synchronizers: gradients are collected in buckets outside of `.grad`.

A hook moves each micro-batch's gradient from `.grad` into the parameter's slot of a
bucket. `wait()` reduces bucket after bucket and hands the slots back as `.grad`. One
synchronizer sums over the ranks, the other averages.
"""

from collections.abc import Iterator
from functools import partial

import torch
import torch.distributed as dist
from planted.placements import (
    BYTES_PER_MB,
    Groups,
    like,
    local,
    local_bytes,
    reduce_groups,
    slices,
)
from torch import nn

from syncverify.features import ALL_BEYOND
from syncverify.subject import Capabilities


class Bucket:
    """A flat buffer with one slot a parameter."""

    def __init__(
        self, parameters: list[nn.Parameter], groups: Groups, dtype: torch.dtype
    ) -> None:
        numel = sum(local(parameter).numel() for parameter in parameters)
        self.buffer = torch.zeros(numel, dtype=dtype)
        self.slots = dict(slices(self.buffer, parameters))
        self.groups = groups


class MainGrads:
    outside = ALL_BEYOND  # plain training steps are all that it is for

    def __init__(
        self,
        param_groups: list[list[nn.Parameter]],
        bucket_size_mb: float,
        require_accumulations: int,
    ) -> None:
        self.param_groups = param_groups
        self.cap_bytes = bucket_size_mb * BYTES_PER_MB
        self.required = require_accumulations
        self.buckets: list[Bucket] = []
        self.hooks: list[torch.utils.hooks.RemovableHandle] = []
        # Invariant: gradients that each parameter has moved in this step.
        self.moved: dict[nn.Parameter, int] = {}

    def set_required_accumulations(self, require_accumulations: int) -> None:
        self.required = require_accumulations

    def bind(self) -> None:
        self.buckets = [
            Bucket(members, self.groups_of(members[0]), self.dtype_of(members[0]))
            for members in self.plan()
        ]
        for bucket in self.buckets:
            for parameter, slot in bucket.slots.items():
                hook = partial(self.on_accumulated, slot)
                handle = parameter.register_post_accumulate_grad_hook(hook)
                self.hooks.append(handle)
                self.moved[parameter] = 0

    def kind_of(self, parameter: nn.Parameter) -> tuple[object, ...]:
        return parameter.dtype, parameter.grad_dtype, self.groups_of(parameter)

    def groups_of(self, parameter: nn.Parameter) -> Groups:
        return reduce_groups(parameter)

    def dtype_of(self, parameter: nn.Parameter) -> torch.dtype:
        return parameter.grad_dtype

    def plan(self) -> Iterator[list[nn.Parameter]]:
        """Sort parameters by what they must share, then cut at the cap."""
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

    def trainable(self) -> Iterator[nn.Parameter]:
        for group in self.param_groups:
            yield from filter(lambda parameter: parameter.requires_grad, group)

    def on_accumulated(self, slot: torch.Tensor, parameter: nn.Parameter) -> None:
        gradient = local(parameter.grad)
        if self.moved[parameter] == 0:
            slot.copy_(gradient)
        else:
            slot.add_(gradient)
        parameter.grad = None
        self.moved[parameter] += 1

    def wait(self) -> None:
        for bucket in self.buckets:
            self.reduce(bucket)
            for parameter, slot in bucket.slots.items():
                parameter.grad = like(parameter, slot.to(parameter.grad_dtype))

    def reduce(self, bucket: Bucket) -> None:
        for group in bucket.groups:
            dist.all_reduce(bucket.buffer, group=group)

    def zero_grad(self) -> None:
        for parameter in self.moved:
            self.moved[parameter] = 0
            parameter.grad = None

    def unbind(self) -> None:
        for hook in self.hooks:
            hook.remove()
        for parameter in self.moved:
            parameter.grad = None
        self.buckets, self.hooks, self.moved = [], [], {}


class AveragedMainGrads(MainGrads):
    """Divides by the number of ranks that contributed."""

    capabilities = Capabilities(
        reduction="mean", varying_accumulations=True, outside=ALL_BEYOND
    )

    def reduce(self, bucket: Bucket) -> None:
        super().reduce(bucket)
        bucket.buffer.div_(self.divisor(bucket))

    def divisor(self, bucket: Bucket) -> int:
        divisor = 1
        for group in bucket.groups:
            divisor *= group.size()
        return divisor
