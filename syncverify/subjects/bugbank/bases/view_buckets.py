"""Gradients are views into flat buckets.

Backward accumulates straight into the buckets. Hooks count, and the hook that completes
a bucket launches its all-reduce, so that it overlaps with the rest of the backward.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator
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
    reduce_groups,
    slices,
)


class Bucket:
    """A flat buffer, and the parameters with gradients that are views into it."""

    def __init__(self, parameters: list[nn.Parameter], groups: Groups) -> None:
        self.parameters = parameters
        self.groups = groups
        self.counts: Counter[nn.Parameter] = Counter()
        self.work: dist.Work | None = None
        first, numel = parameters[0], sum(local(p).numel() for p in parameters)
        self.buffer = torch.zeros(numel, dtype=grad_dtype(first), device=first.device)
        self.attach(self.buffer)

    def attach(self, buffer: torch.Tensor) -> None:
        """Make gradients views into a buffer."""
        for parameter, part in slices(buffer, self.parameters):
            parameter.grad = like(parameter, part)


class ViewBuckets(Managed):
    """Launches the all-reduce of a bucket when all of its gradients came."""

    def bind(self) -> None:
        """Make buckets and hooks."""
        self.buckets = [
            Bucket(parameters, self.groups_of(parameters[0]))
            for parameters in self.plan()
        ]
        for bucket in self.buckets:
            for parameter in filter(lambda p: p.requires_grad, bucket.parameters):
                self.register(parameter, partial(self.on_accumulated, bucket))

    def groups_of(self, parameter: nn.Parameter) -> Groups:
        """List the groups over which to sum."""
        return reduce_groups(parameter)

    def is_managed(self, parameter: nn.Parameter) -> bool:
        """Tell whether a parameter has a place in a bucket."""
        return parameter.requires_grad

    def plan(self) -> Iterator[list[nn.Parameter]]:
        """Fill buckets up to the cap, from the last parameter to the first."""
        filling: dict[object, list[nn.Parameter]] = {}
        for index, group in enumerate(self.param_groups):
            for parameter in filter(self.is_managed, reversed(group)):
                key = (index, grad_dtype(parameter), self.groups_of(parameter))
                members = filling.setdefault(key, [])
                used = sum(local_bytes(member) for member in members)
                if members and used + local_bytes(parameter) > self.cap_bytes:
                    yield members
                    members = filling[key] = []
                members.append(parameter)
        yield from filling.values()

    def on_accumulated(self, bucket: Bucket, parameter: nn.Parameter) -> None:
        """Count an accumulation, and launch a complete bucket."""
        bucket.counts[parameter] += 1
        if self.is_ready(bucket):
            self.launch(bucket)

    def is_ready(self, bucket: Bucket) -> bool:
        """Tell whether a bucket is complete."""
        return all(bucket.counts[p] == self.required for p in bucket.parameters)

    def launch(self, bucket: Bucket) -> None:
        """Start to sum a bucket over its first group."""
        if bucket.groups:
            group = bucket.groups[0]
            bucket.work = dist.all_reduce(bucket.buffer, group=group, async_op=True)

    def wait(self) -> None:
        """Finish all buckets."""
        for bucket in self.buckets:
            self.finish(bucket)

    def finish(self, bucket: Bucket) -> None:
        """Wait for a bucket, and sum it over its other groups."""
        if bucket.work is not None:
            bucket.work.wait()
            bucket.work = None
            for group in bucket.groups[1:]:
                dist.all_reduce(bucket.buffer, group=group)

    def zero_grad(self) -> None:
        """Clear buckets and counts."""
        for bucket in self.buckets:
            bucket.counts.clear()
            bucket.buffer.zero_()

    @override
    def unbind(self) -> None:
        super().unbind()
        for bucket in self.buckets:
            for parameter in bucket.parameters:
                parameter.grad = None
        self.buckets = []


class AveragedViewBuckets(ViewBuckets):
    """Divides by the number of ranks that contributed."""

    capabilities = Capabilities(reduction="mean", varying_accumulations=True)

    @override
    def wait(self) -> None:
        super().wait()
        for bucket in self.buckets:
            self.average(bucket)

    def average(self, bucket: Bucket) -> None:
        """Divide a bucket."""
        for group in bucket.groups:
            bucket.buffer.div_(group.size())


class FlagsMicroBatches(ViewBuckets):
    """Reduces buckets in the micro-batch with the flag, however many came before it."""

    def run_micro_batch(
        self, compute_loss: Callable[[], torch.Tensor], *, is_last: bool
    ) -> None:
        """Run forward and backward with a flag."""
        self.is_syncing = is_last
        compute_loss().backward()

    @override
    def is_ready(self, bucket: Bucket) -> bool:
        counted = {bucket.counts[parameter] for parameter in bucket.parameters}
        return self.may_reduce(bucket) and len(counted) == 1

    def may_reduce(self, bucket: Bucket) -> bool:
        """Tell whether this micro-batch reduces a bucket."""
        return self.is_syncing


class ReducesInWait(ViewBuckets):
    """Launches nothing in backward, and bucket after bucket in `wait()`."""

    @override
    def on_accumulated(self, bucket: Bucket, parameter: nn.Parameter) -> None:
        pass

    @override
    def wait(self) -> None:
        for bucket in self.order():
            self.launch(bucket)
        super().wait()

    def order(self) -> list[Bucket]:
        """List buckets in the order in which they are launched."""
        return self.buckets


def is_odd() -> bool:
    """Tell whether this rank's number is odd."""
    # In reports, data, a flag, addresses or a clock make ranks differ. Numbers do in every run.
    return dist.get_rank() % 2 == 1
