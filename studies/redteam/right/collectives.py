"""Sums over ranks by collectives that are not `all_reduce`."""

import functools
from typing import Any

import torch
import torch.distributed as dist
from torch.distributed._functional_collectives import (
    all_reduce as functional_all_reduce,
)
from torch.distributed.tensor import DTensor, Partial, Replicate
from torch.nn.functional import pad
from typing_extensions import override

from studies.redteam.bases import (
    OwnGroups,
    SumsOver,
    exchanged,
    gathered,
    local_of,
    reduce_groups_of,
)
from studies.redteam.program import right
from syncverify.subjects.bugbank.bases.plain_grads import PlainGrads


@right(since="a sum of all parts is the sum")
class GathersAndSums(SumsOver):
    """Each rank gathers all parts and sums them itself."""

    @override
    def sum_over(self, part: torch.Tensor, group: dist.ProcessGroup) -> None:
        parts = gathered(part.contiguous(), group)
        part.copy_(functools.reduce(torch.add, parts))


@right(since="both halves of an all-reduce, with padding that is cut off")
class ScattersAndGathers(SumsOver):
    """A reduce-scatter of a padded copy is followed by an all-gather."""

    @override
    def sum_over(self, part: torch.Tensor, group: dist.ProcessGroup) -> None:
        flat = part.reshape(-1)
        padded = pad(flat, (0, -flat.numel() % group.size()))
        own = torch.empty_like(padded[: padded.numel() // group.size()])
        dist.reduce_scatter_tensor(own, padded, group=group)
        dist.all_gather_into_tensor(padded, own, group=group)
        part.copy_(padded[: part.numel()].view_as(part))


@right(since="the root has the sum, and sends it")
class ReducesToRoot(SumsOver):
    """A reduction to one rank is followed by its broadcast."""

    @override
    def sum_over(self, part: torch.Tensor, group: dist.ProcessGroup) -> None:
        own, root = part.contiguous(), dist.get_global_rank(group, group.size() - 1)
        dist.reduce(own, root, group=group)
        dist.broadcast(own, root, group=group)
        part.copy_(own)


@right(since="each rank sums what all others send to it")
class ExchangesParts(SumsOver):
    """All ranks exchange whole parts by `all_to_all_single`."""

    @override
    def sum_over(self, part: torch.Tensor, group: dist.ProcessGroup) -> None:
        sent = part.reshape(-1).repeat(group.size())
        received = torch.empty_like(sent)
        dist.all_to_all_single(received, sent, group=group)
        part.copy_(received.view(group.size(), -1).sum(0).view_as(part))


@right(since="after n-1 turns each rank has seen each part")
class SendsAround(SumsOver):
    """Parts go around a ring, by messages from rank to rank."""

    @override
    def sum_over(self, part: torch.Tensor, group: dist.ProcessGroup) -> None:
        ranks = dist.get_process_group_ranks(group)
        following = ranks[(group.rank() + 1) % len(ranks)]
        before = ranks[group.rank() - 1]
        sent, total = part.contiguous().clone(), part.clone()
        for _ in ranks[1:]:
            sent = exchanged(sent, following, before, group)
            total += sent
        part.copy_(total)


@right(since="a broadcast of each rank's part, and a local sum")
class BroadcastsEach(SumsOver):
    """Each rank sends its part to all others in turn."""

    @override
    def sum_over(self, part: torch.Tensor, group: dist.ProcessGroup) -> None:
        total = torch.zeros_like(part)
        for rank in dist.get_process_group_ranks(group):
            sent = part.contiguous().clone()
            dist.broadcast(sent, rank, group=group)
            total += sent
        part.copy_(total)


@right(since="a functional collective waits by itself when it is read")
class ReducesFunctionally(SumsOver):
    """The sum is a result of a functional collective, copied back."""

    @override
    def sum_over(self, part: torch.Tensor, group: dist.ProcessGroup) -> None:
        part.copy_(functional_all_reduce(part.contiguous(), "sum", group))


@right(since="DTensor sums `Partial` gradients when they are redistributed")
class Redistributes(PlainGrads):
    """Gradients are marked Partial and redistributed to the parameter's placements."""

    @override
    def reduce(self, gradient: torch.Tensor) -> None:
        if not isinstance(gradient, DTensor):
            return
        placements = gradient.placements
        if any(isinstance(placement, Replicate) for placement in placements):
            partial = DTensor.from_local(
                local_of(gradient),
                gradient.device_mesh,
                [Partial() if each.is_replicate() else each for each in placements],
                run_check=False,
                shape=gradient.shape,
                stride=gradient.stride(),
            )
            summed = partial.redistribute(placements=placements)
            local_of(gradient).copy_(local_of(summed))


@right(since="one call of NCCL for several collectives")
class Coalesces(PlainGrads):
    """All reductions of an axis are issued as one."""

    @override
    def wait(self) -> None:
        listed: dict[Any, list[torch.Tensor]] = {}
        for parameter in self.parameters:
            if parameter.grad is not None:
                for level, group in enumerate(reduce_groups_of(parameter.grad)):
                    part = local_of(parameter.grad)
                    listed.setdefault((level, group), []).append(part)
        for (_, group), parts in sorted(listed.items(), key=lambda item: item[0][0]):
            with dist._coalescing_manager(group):  # noqa: SLF001  # no public name
                for part in parts:
                    dist.all_reduce(part, group=group)


@right(since="words of 32 bits are moved, and never summed")
class SendsWords(SumsOver):
    """Gradients of 16 bits are gathered as words of 32 bits and summed as what they are."""

    @override
    def sum_over(self, part: torch.Tensor, group: dist.ProcessGroup) -> None:
        flat = part.reshape(-1)
        padded = pad(flat, (0, -flat.numel() % 2))
        sent = padded.view(torch.int32) if flat.element_size() < 4 else padded
        words = gathered(sent, group)
        summed = torch.stack([each.view(part.dtype) for each in words]).sum(0)
        part.copy_(summed[: flat.numel()].view_as(part))


@right(since="bytes are moved, and never summed")
class SendsBytes(SumsOver):
    """Gradients are gathered as bytes."""

    @override
    def sum_over(self, part: torch.Tensor, group: dist.ProcessGroup) -> None:
        sent = part.reshape(-1).contiguous().view(torch.uint8)
        received = torch.empty(group.size() * sent.numel(), dtype=torch.uint8)
        dist.all_gather_into_tensor(received, sent, group=group)
        parts = received.view(group.size(), -1)
        summed = torch.stack([each.clone().view(part.dtype) for each in parts]).sum(0)
        part.copy_(summed.view_as(part))


@right(since="objects are gathered, and floats of Python add exactly here")
class GathersObjects(SumsOver):
    """Gradients travel as pickled lists."""

    @override
    def sum_over(self, part: torch.Tensor, group: dist.ProcessGroup) -> None:
        listed: list[Any] = [None] * group.size()
        dist.all_gather_object(listed, part.tolist(), group=group)
        parts = [torch.tensor(each, dtype=torch.float64) for each in listed]
        part.copy_(functools.reduce(torch.add, parts).view_as(part))


@right(since="a control number is no gradient", needs=())
class CountsMicroBatches(PlainGrads):
    """A number of micro-batches is summed over the world in each of them."""

    @override
    def bind(self) -> None:
        self.seen = 0
        first = self.parameters[0]
        self.handles.append(first.register_post_accumulate_grad_hook(self.count))

    def count(self, _: torch.Tensor) -> None:
        """Agree with the other ranks on the number of micro-batches."""
        number = torch.ones(1)
        dist.all_reduce(number)
        self.seen += int(number.item())


@right(since="a flag is no gradient")
class AgreesOnOverflow(PlainGrads):
    """Ranks agree by MAX on whether a gradient is finite, then sum."""

    @override
    def wait(self) -> None:
        flag = torch.zeros(1)
        for parameter in self.parameters:
            if parameter.grad is not None:
                is_finite = local_of(parameter.grad).isfinite().all()
                flag = torch.maximum(flag, (~is_finite).float())
        dist.all_reduce(flag, dist.ReduceOp.MAX)
        super().wait()


@right(since="a barrier moves nothing")
class MeetsBeforeAndAfter(PlainGrads):
    """Barriers stand around the reductions."""

    @override
    def wait(self) -> None:
        dist.barrier()
        super().wait()
        dist.barrier()


@right(since="ranks write to keys of their own, and read those of all")
class SumsThroughTheStore(SumsOver):
    """Gradients are exchanged by the store that ranks share."""

    @override
    def bind(self) -> None:
        self.turn = 0

    @override
    def sum_over(self, part: torch.Tensor, group: dist.ProcessGroup) -> None:
        self.turn += 1
        store = dist.distributed_c10d._get_default_store()  # noqa: SLF001  # no public name
        ranks = dist.get_process_group_ranks(group)
        place = f"{ranks}/{self.turn}/{group.group_name}"
        text = " ".join(map(str, part.double().reshape(-1).tolist()))
        store.set(f"{place}/{dist.get_rank()}", text)
        parts = []
        for rank in ranks:
            words = store.get(f"{place}/{rank}").decode().split()
            parts.append(torch.tensor([*map(float, words)], dtype=torch.float64))
        part.copy_(functools.reduce(torch.add, parts).view_as(part))


@right(since="the sum of sums is the sum, in groups of its own")
class SumsInOwnGroups(OwnGroups):
    """Process groups of its own have the ranks of the mesh's groups."""

    @override
    def unbind(self) -> None:
        for group in self.own.values():
            if dist.get_rank(group) >= 0:
                dist.destroy_process_group(group)
        super().unbind()
