"""Right synchronizers and messages, of which the programs of the red team are variants."""

from collections.abc import Iterator
from typing import Any

import torch
import torch.distributed as dist
from torch import nn
from typing_extensions import override

from syncverify.scenario.contract import Capabilities
from syncverify.subjects.bugbank.bases.placements import (
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
from syncverify.subjects.bugbank.bases.plain_grads import PlainGrads
from syncverify.subjects.bugbank.bases.side_streams import SideStreams
from syncverify.subjects.bugbank.bases.view_buckets import Bucket, ViewBuckets

Sums = list[tuple[torch.Tensor, Groups, list[nn.Parameter]]]


def local_of(gradient: torch.Tensor) -> torch.Tensor:
    """Return this rank's part of a gradient."""
    return local(gradient).detach()


def reduce_groups_of(gradient: torch.Tensor) -> Groups:
    """List the groups over which to sum a gradient, which has a parameter's placements."""
    return reduce_groups(gradient)  # type: ignore[arg-type]  # it asks for placements alone


def gathered(part: torch.Tensor, group: dist.ProcessGroup) -> list[torch.Tensor]:
    """Return the parts of all ranks of a group."""
    parts = [torch.empty_like(part) for _ in range(group.size())]
    dist.all_gather(parts, part, group=group)
    return parts


def exchanged(
    sent: torch.Tensor, ahead: int, behind: int, group: dist.ProcessGroup
) -> torch.Tensor:
    """Send to one rank of the world, and return the message of another one."""
    received = torch.empty_like(sent)
    works = dist.batch_isend_irecv(
        [
            dist.P2POp(dist.isend, sent, ahead, group),
            dist.P2POp(dist.irecv, received, behind, group),
        ]
    )
    for work in works:
        work.wait()
    return received


def sum_rest(bucket: Bucket) -> None:
    """Drop the work of a bucket's first group, and sum over its other groups."""
    bucket.work = None
    for group in bucket.groups[1:]:
        dist.all_reduce(bucket.buffer, group=group)


class SumsOver(PlainGrads):
    """Sums one gradient after the other over one group after the other."""

    @override
    def reduce(self, gradient: torch.Tensor) -> None:
        for group in reduce_groups_of(gradient):
            self.sum_over(local_of(gradient), group)

    def sum_over(self, part: torch.Tensor, group: dist.ProcessGroup) -> None:
        """Sum a part over a group, in place."""
        dist.all_reduce(part, group=group)


class OwnGroups(PlainGrads):
    """Reduces over groups of its own, with the ranks of the mesh's groups."""

    @override
    def bind(self) -> None:
        self.own: dict[tuple[int, ...], dist.ProcessGroup] = {}
        for ranks in self.wanted():
            self.own[ranks] = dist.new_group([*ranks])

    def wanted(self) -> list[tuple[int, ...]]:
        """List the ranks of all groups of the world, in one order on all ranks."""
        mine = {
            tuple(dist.get_process_group_ranks(group))
            for parameter in self.parameters
            for group in reduce_groups(parameter)
        }
        listed: list[set[tuple[int, ...]]] = [
            set() for _ in range(dist.get_world_size())
        ]
        dist.all_gather_object(listed, mine)
        return sorted(set.union(*listed))

    @override
    def reduce(self, gradient: torch.Tensor) -> None:
        for group in reduce_groups_of(gradient):
            own = self.own[tuple(dist.get_process_group_ranks(group))]
            dist.all_reduce(local_of(gradient), group=own)

    @override
    def unbind(self) -> None:
        super().unbind()
        self.own.clear()


class Plain(SumsOver):
    """Sums gradient after gradient in `wait()`; the base of the second team's programs."""

    capabilities = Capabilities(varying_accumulations=True)

    def __init__(
        self, groups: list[list[nn.Parameter]], size_mb: float, count: int
    ) -> None:
        super().__init__(groups, size_mb, count)
        self.cap_bytes = size_mb * BYTES_PER_MB

    def sum_up(self, parameter: nn.Parameter) -> None:
        """Sum the gradient of a parameter."""
        for group in reduce_groups(parameter):
            self.sum_over(local_grad(parameter).detach(), group)


class Views(ViewBuckets):
    """Launches a bucket, of which gradients are views, when all of its gradients came."""

    buckets: list[Any]


class Streams(SideStreams):
    """Reduces on a side stream, which forks from the caller's and is joined."""

    capabilities = Capabilities(takes_cuda_streams=True)
    buckets: list[Any]
    overlaps_backward = False


class Main(Plain):
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
            self.handles.append(each.register_post_accumulate_grad_hook(self.move))

    def move(self, parameter: nn.Parameter) -> None:
        """Move a gradient into its slot."""
        gradient = local_grad(parameter).detach()
        if self.moved[parameter]:
            self.slots[parameter].add_(gradient)
        else:
            self.slots[parameter].copy_(gradient)
        parameter.grad = None
        self.moved[parameter] += 1

    def sum_bucket(self, buffer: torch.Tensor, groups: Groups) -> None:
        """Sum a bucket."""
        for group in groups:
            dist.all_reduce(buffer, group=group)

    @override
    def wait(self) -> None:
        for buffer, groups, members in self.buckets:
            self.sum_bucket(buffer, groups)
            for parameter in members:
                parameter.grad = like(parameter, self.slots[parameter])

    @override
    def zero_grad(self) -> None:
        super().zero_grad()
        self.moved = dict.fromkeys(self.parameters, 0)

    @override
    def unbind(self) -> None:
        super().unbind()
        self.handles, self.buckets, self.slots = [], [], {}


class Ordinary(Plain):
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

    @override
    def wait(self) -> None:
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
