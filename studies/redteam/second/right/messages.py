"""Right programs that send messages of their own."""

import torch
import torch.distributed as dist
from torch import nn
from typing_extensions import override

from studies.redteam.bases import Main, Ordinary, Plain, exchanged
from studies.redteam.program import right
from syncverify.scenario.contract import Capabilities
from syncverify.subjects.bugbank.bases.placements import (
    Groups,
    local_grad,
    reduce_groups,
)


@right(since="each chunk passes size - 1 ranks in both halves of the ring")
class OwnRing(Plain):
    """A ring of its own: chunks are summed on the way around, then passed on once more."""

    @override
    def sum_over(self, part: torch.Tensor, group: dist.ProcessGroup) -> None:
        size, rank = group.size(), group.rank()
        if not part.numel():
            return
        ahead = dist.get_global_rank(group, (rank + 1) % size)
        behind = dist.get_global_rank(group, (rank - 1) % size)
        chunk = -(-part.numel() // size)
        flat = part.new_zeros(chunk * size)
        flat[: part.numel()].copy_(part.reshape(-1))
        chunks = list(flat.view(size, chunk))
        for turn in range(size - 1):
            sent = chunks[(rank - turn) % size]
            received = exchanged(sent, ahead, behind, group)
            chunks[(rank - turn - 1) % size].add_(received)
        for turn in range(size - 1):
            sent = chunks[(rank - turn + 1) % size]
            received = exchanged(sent, ahead, behind, group)
            chunks[(rank - turn) % size].copy_(received)
        part.copy_(flat[: part.numel()].view(part.shape))


@right(
    since="scatter over the inner axis, sum over the outer ones, gather over the inner one"
)
class TwoLevelReduction(Main):
    """Over two axes: reduce-scatter on the inner, all-reduce on the outer, all-gather on the inner."""

    @override
    def sum_bucket(self, buffer: torch.Tensor, groups: Groups) -> None:
        if not groups or not buffer.numel():
            return
        inner, outer = groups[-1], groups[:-1]
        size = inner.size()
        share = -(-buffer.numel() // size)
        padded = buffer.new_zeros(share * size)
        padded[: buffer.numel()].copy_(buffer)
        own = buffer.new_empty(share)
        dist.reduce_scatter_tensor(own, padded, group=inner)
        for group in outer:
            dist.all_reduce(own, group=group)
        dist.all_gather_into_tensor(padded, own, group=inner)
        buffer.copy_(padded[: buffer.numel()])


@right(since="ranks beyond the power of two fold in before, and get the sum after")
class RecursiveDoubling(Plain):
    """Recursive doubling by messages, for any number of ranks."""

    @override
    def sum_over(self, part: torch.Tensor, group: dist.ProcessGroup) -> None:
        size, rank = group.size(), group.rank()
        if not part.numel():
            return
        power = 1 << (size.bit_length() - 1)
        extra = size - power
        own = part.clone(memory_format=torch.contiguous_format)
        other = torch.empty_like(own)

        def global_rank(peer: int) -> int:
            return dist.get_global_rank(group, peer)

        if rank >= power:
            dist.send(own, global_rank(rank - power), group=group)
            dist.recv(own, global_rank(rank - power), group=group)
            part.copy_(own)
            return
        if rank < extra:
            dist.recv(other, global_rank(rank + power), group=group)
            own.add_(other)
        distance = 1
        while distance < power:
            peer = global_rank(rank ^ distance)
            own.add_(exchanged(own, peer, peer, group))
            distance *= 2
        if rank < extra:
            dist.send(own, global_rank(rank + power), group=group)
        part.copy_(own)


@right(since="each rank has one parent, and both children are added where they exist")
class BinaryTree(Plain):
    """A binary tree of messages: sums go up to rank 0, and the total comes down."""

    @override
    def sum_over(self, part: torch.Tensor, group: dist.ProcessGroup) -> None:
        size, rank = group.size(), group.rank()
        if not part.numel():
            return
        own = part.clone(memory_format=torch.contiguous_format)
        below = [child for child in (2 * rank + 1, 2 * rank + 2) if child < size]
        children = [dist.get_global_rank(group, child) for child in below]
        for child in children:
            other = torch.empty_like(own)
            dist.recv(other, child, group=group)
            own.add_(other)
        if rank:
            parent = dist.get_global_rank(group, (rank - 1) // 2)
            dist.send(own, parent, group=group)
            dist.recv(own, parent, group=group)
        for child in children:
            dist.send(own, child, group=group)
        part.copy_(own)


@right(
    since="sums over micro-batches have the gradient's dtype, and each axis is summed once for each of them"
)
class Hsdp(Main):
    """The inner axis is reduced in each micro-batch, the outer axes at the last one, in `wait()`."""

    capabilities = Capabilities(reduces_each_micro_batch=True)

    @override
    def move(self, parameter: nn.Parameter) -> None:
        for group in reduce_groups(parameter)[-1:]:
            part = local_grad(parameter).detach()
            whole = part.contiguous()
            dist.all_reduce(whole, group=group)
            if whole is not part:
                part.copy_(whole)
        super().move(parameter)

    @override
    def sum_bucket(self, buffer: torch.Tensor, groups: Groups) -> None:
        super().sum_bucket(buffer, groups[:-1])


@right(since="`owner()` and `wait()` count the same list")
class OwnersInTurn(Plain):
    """Each gradient is reduced to one owner, in turns over the trainable parameters."""

    capabilities = Capabilities(gradients="owner", varying_accumulations=True)

    @override
    def bind(self) -> None:
        self.index = {parameter: i for i, parameter in enumerate(self.parameters)}

    def owner(self, parameter: nn.Parameter) -> bool:
        """Tell whether this rank owns a gradient."""
        index = self.index.get(parameter, 0)
        return all(g.rank() == index % g.size() for g in reduce_groups(parameter))

    @override
    def wait(self) -> None:
        for parameter, index in self.index.items():
            part = local_grad(parameter).detach()
            for group in reduce_groups(parameter):
                own = part.contiguous()
                dist.reduce(own, group=group, group_dst=index % group.size())
                part.copy_(own)

    @override
    def unbind(self) -> None:
        super().unbind()
        self.index = {}


@right(since="the share of each rank is divided once, and gathered")
class MeanByScatter(Ordinary):
    """Means of ordinary tensors: reduce-scatter, division of the own share, all-gather."""

    @override
    def average(self, flat: torch.Tensor) -> None:
        size = dist.get_world_size()
        share = -(-flat.numel() // size)
        if not share:
            return
        padded = flat.new_zeros(share * size)
        padded[: flat.numel()].copy_(flat)
        own = flat.new_empty(share)
        dist.reduce_scatter_tensor(own, padded)
        own.div_(size)
        dist.all_gather_into_tensor(padded, own)
        flat.copy_(padded[: flat.numel()])
