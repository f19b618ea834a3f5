"""Defects that wait for large numbers."""

from collections.abc import Iterator
from typing import Any

import torch
import torch.distributed as dist
from torch import nn
from typing_extensions import override

from studies.redteam.bases import Main, Ordinary, Plain, Views, exchanged
from studies.redteam.program import wrong
from syncverify.scenario.contract import Capabilities
from syncverify.subjects.bugbank.bases.placements import (
    Groups,
    grad_dtype,
    local,
    reduce_groups,
)


@wrong(
    trigger="17 or more parameters in one bucket: it is launched when the first 16 came"
)
class MaskOfSixteenBits(Views):
    """Arrivals in a bucket are kept in a mask of 16 bits, as a kernel would take it."""

    @override
    def bind(self) -> None:
        super().bind()
        for bucket in self.buckets:
            bucket.mask = 0
            bucket.index = {p: i for i, p in enumerate(bucket.parameters)}

    @override
    def on_accumulated(self, bucket: Any, parameter: nn.Parameter) -> None:
        bucket.counts[parameter] += 1
        if bucket.counts[parameter] == self.required:
            bucket.mask |= 1 << bucket.index[parameter]
            full = ((1 << len(bucket.parameters)) - 1) & 0xFFFF
            # WRONG: the 17th parameter has no bit in either number.
            if bucket.mask & 0xFFFF == full and bucket.work is None:
                self.launch(bucket)

    @override
    def zero_grad(self) -> None:
        super().zero_grad()
        for bucket in self.buckets:
            bucket.mask = 0


@wrong(
    trigger="33 or more parameters in one bucket: the 33rd sets the bit of the first"
)
class MaskOfThirtyTwoBits(Views):
    """One machine word tells which parameters of a bucket are still missing."""

    @override
    def bind(self) -> None:
        super().bind()
        for bucket in self.buckets:
            bucket.index = {p: i for i, p in enumerate(bucket.parameters)}
        self.arm()

    def arm(self) -> None:
        """Set all bits."""
        for bucket in self.buckets:
            bucket.missing = 0
            for i in bucket.index.values():
                bucket.missing |= 1 << (i & 31)  # WRONG: shifts wrap at 32 bits

    @override
    def on_accumulated(self, bucket: Any, parameter: nn.Parameter) -> None:
        bucket.counts[parameter] += 1
        if bucket.counts[parameter] == self.required:
            before = bucket.missing
            bucket.missing &= ~(1 << (bucket.index[parameter] & 31))
            if before and not bucket.missing:
                self.launch(bucket)

    @override
    def zero_grad(self) -> None:
        super().zero_grad()
        self.arm()


CHUNK = 1 << 16


@wrong(
    trigger="a gradient of more than 65,536 elements whose number is no multiple of 65,536; 2 ranks"
)
class ChunksOfSixtyFourKi(Plain):
    """Large gradients go out in chunks of 64 Ki elements; what is left over does not."""

    @override
    def sum_over(self, part: torch.Tensor, group: dist.ProcessGroup) -> None:
        if part.numel() <= CHUNK:
            dist.all_reduce(part, group=group)
            return
        flat = part.contiguous().view(-1)
        # WRONG: floor division drops the last, shorter chunk.
        for index in range(flat.numel() // CHUNK):
            dist.all_reduce(flat[index * CHUNK : (index + 1) * CHUNK], group=group)
        part.copy_(flat.view(part.shape))


LARGE = 2**20


@wrong(
    trigger="a float32 bucket of 1 MiB or more on 2 ranks, with a sum that needs more than 8 bits"
)
class LargeInHalfWidth(Main):
    """Messages of 1 MiB and more are sent in bfloat16 to save bandwidth."""

    @override
    def sum_bucket(self, buffer: torch.Tensor, groups: Groups) -> None:
        # WRONG: the contract has no narrower dtype on the wire.
        if buffer.nbytes >= LARGE and buffer.dtype == torch.float32:
            wire = buffer.to(torch.bfloat16)
            super().sum_bucket(wire, groups)
            buffer.copy_(wire)
        else:
            super().sum_bucket(buffer, groups)


MAX_TURNS = 3  # tuned on one node of four GPUs


@wrong(trigger="5 or more ranks on one axis: the ring stops after 3 turns")
class RingOfThreeTurns(Plain):
    """A ring passes each rank's part on, one neighbour a turn."""

    @override
    def sum_over(self, part: torch.Tensor, group: dist.ProcessGroup) -> None:
        size, rank = group.size(), group.rank()
        ahead = dist.get_global_rank(group, (rank + 1) % size)
        behind = dist.get_global_rank(group, (rank - 1) % size)
        travelling = part.clone(memory_format=torch.contiguous_format)
        # WRONG: size - 1 turns are needed.
        for _ in range(min(size - 1, MAX_TURNS)):
            travelling = exchanged(travelling, ahead, behind, group)
            part.add_(travelling)


NODE = 4


@wrong(
    trigger="5 to 7 ranks on one axis: ranks of the last, incomplete node are left out"
)
class NodesOfFour(Plain):
    """Parts are gathered and summed node by node, with four ranks in a node."""

    @override
    def sum_over(self, part: torch.Tensor, group: dist.ProcessGroup) -> None:
        size = group.size()
        own = part.contiguous().view(1, -1)
        gathered = own.new_empty(size, own.shape[1])
        dist.all_gather_into_tensor(gathered, own, group=group)
        if size > NODE:
            # WRONG: a world that is no multiple of a node loses its last ranks.
            num_nodes = size // NODE
            nodes = gathered[: num_nodes * NODE].view(num_nodes, NODE, -1)
            total = nodes.sum(1, dtype=part.dtype).sum(0, dtype=part.dtype)
        else:
            total = gathered.sum(0, dtype=part.dtype)
        part.copy_(total.view(part.shape))


@wrong(
    trigger="3 micro-batches in a step and 2 in the next: the total is even after the first of them"
)
class CountsModulo(Views):
    """Backwards are counted through, and each multiple of the agreed number ends a step."""

    capabilities = Capabilities(varying_accumulations=True)

    @override
    def is_ready(self, bucket: Any) -> bool:
        counts = {bucket.counts[p] for p in bucket.parameters}
        return len(counts) == 1 and counts.pop() % self.required == 0

    @override
    def zero_grad(self) -> None:
        # WRONG: counts go on, and the number of micro-batches may change between steps.
        for bucket in self.buckets:
            bucket.buffer.zero_()


@wrong(
    trigger="bfloat16 parameters with float32 gradients, and a cap that only one of two gradients fits"
)
class CapsByParameterDtype(Views):
    """The cap of a bucket counts bytes by the parameters' own element size."""

    capabilities = Capabilities(
        keeps_bucket_cap=True, right=frozenset({"dtype=own gradient dtype"})
    )

    @override
    def plan(self) -> Iterator[list[nn.Parameter]]:
        filling: dict[Any, Any] = {}
        for index, group in enumerate(self.param_groups):
            for p in reversed(group):
                if not p.requires_grad:
                    continue
                key = (index, grad_dtype(p), reduce_groups(p))
                members = filling.setdefault(key, [])
                # WRONG: `nbytes` is that of the parameter, and gradients may be wider.
                used = sum(local(m).nbytes for m in members)
                if members and used + local(p).nbytes > self.cap_bytes:
                    yield members
                    members = filling[key] = []
                members.append(p)
        yield from filling.values()


@wrong(
    trigger="a bucket of more than 65,536 elements with a parameter that begins beyond: its slot lies on that of another"
)
class OffsetsOfSixteenBits(Main):
    """A table of offsets, of 16 bits each, says where each parameter begins in its bucket."""

    @override
    def bind(self) -> None:
        super().bind()
        for buffer, _, members in self.buckets:
            start = 0
            for p in members:
                numel = local(p).numel()
                offset = start & 0xFFFF  # WRONG: as in a table of 16-bit numbers
                self.slots[p] = buffer[offset : offset + numel].view(local(p).shape)
                start += numel


@wrong(trigger="5 to 7 ranks on one axis: the last level of the tree is left out")
class BinomialOfTwoLevels(Plain):
    """A binomial tree of messages sums up to rank 0, which broadcasts the total."""

    @override
    def sum_over(self, part: torch.Tensor, group: dist.ProcessGroup) -> None:
        size, rank = group.size(), group.rank()
        if not part.numel():
            return
        own = part.clone(memory_format=torch.contiguous_format)
        # WRONG: the number of levels is rounded down; (size - 1).bit_length() is right.
        num_levels = max(min(size - 1, 2), size.bit_length() - 1)
        for level in range(num_levels):
            distance = 1 << level
            if rank & distance:
                dist.send(
                    own, dist.get_global_rank(group, rank - distance), group=group
                )
                break
            if rank + distance < size:
                other = torch.empty_like(own)
                dist.recv(
                    other, dist.get_global_rank(group, rank + distance), group=group
                )
                own.add_(other)
        dist.broadcast(own, group_src=0, group=group)
        part.copy_(own)


@wrong(
    trigger="gradients that fill a bucket to its last byte: the one that fits exactly is also in the next bucket, and summed twice"
)
class ExactFitTwice(Ordinary):
    """Sums of ordinary tensors; a gradient that fills its bucket exactly closes it at once."""

    capabilities = Capabilities(
        tensors="local", varying_accumulations=True, keeps_bucket_cap=True
    )

    @override
    def average(self, flat: torch.Tensor) -> None:
        dist.all_reduce(flat)

    @override
    def plan(self) -> Iterator[list[torch.Tensor]]:
        for gradients in self.gradients():
            bucket: list[torch.Tensor] = []
            used = 0
            for gradient in gradients:
                if bucket and used + gradient.nbytes >= self.cap_bytes:
                    if used + gradient.nbytes == self.cap_bytes:
                        bucket.append(gradient)
                    yield bucket
                    bucket, used = [], 0
                    # WRONG: `continue` is missing where the gradient has gone already.
                bucket.append(gradient)
                used += gradient.nbytes
            yield bucket
