"""Ranks that do not launch the same collectives in the same order."""

from collections.abc import Iterator

import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.tensor import DTensor
from typing_extensions import override

from syncverify.subjects.bugbank.bases.careful import Careful
from syncverify.subjects.bugbank.bases.main_grads import Bucket as MainBucket
from syncverify.subjects.bugbank.bases.main_grads import MainGrads
from syncverify.subjects.bugbank.bases.placements import local_bytes, local_grad, slices
from syncverify.subjects.bugbank.bases.view_buckets import (
    Bucket,
    ReducesInWait,
    ViewBuckets,
    is_odd,
)
from syncverify.subjects.bugbank.entry import reported


@reported(
    "bucket-order-partly-broadcast",
    "pytorch/pytorch#35137",
    trigger="2 ranks, 2 parameters that one rank puts into one bucket",
    violates="collectives_match_across_ranks",
    cause="buckets_differ",
    silent=False,
)
class CutsAtItsOwnCap(ViewBuckets):
    """The order of parameters was agreed upon, sizes of buckets were not."""

    @override
    def plan(self) -> Iterator[list[nn.Parameter]]:
        for members in super().plan():
            if is_odd():
                yield from ([member] for member in members)
            else:
                yield members


@reported(
    "cross-group-collective-order",
    "meta-pytorch/torchrec#4149",
    trigger="a mesh of (2, 2), a parameter replicated over both axes",
    violates="every_wait_completes",
    cause="deadlock",
    silent=False,
)
class TakesAxesInTurn(MainGrads):
    """Half of the ranks start with the other axis, to keep all links busy."""

    @override
    def reduce(self, bucket: MainBucket) -> None:
        (parameter, *_) = bucket.slots
        if isinstance(parameter, DTensor):
            row_and_column = parameter.device_mesh.get_coordinate()
            if sum(row_and_column or ()) % 2:
                bucket.groups = bucket.groups[::-1]
        super().reduce(bucket)


class CountsFirst(ReducesInWait):
    """Right: all ranks exchange counts, and then reduce."""

    @override
    def wait(self) -> None:
        self.exchange_counts()
        super().wait()

    def exchange_counts(self) -> None:
        """Send a number from each rank to all others."""
        for group in self.buckets[0].groups[:1]:
            counts = torch.zeros(group.size(), dtype=torch.int64)
            dist.all_to_all_single(counts, torch.ones_like(counts), group=group)


@reported(
    "hook-vs-other-collective",
    "pytorch/pytorch#72843",
    trigger="2 ranks, an all_to_all before the reduction or after it",
    violates="collectives_match_across_ranks",
    cause="collective_mismatch",
    silent=False,
)
class CountsAfterwardsAsWell(CountsFirst):
    """A hook's reduction on one rank meets another collective on the other."""

    @override
    def wait(self) -> None:
        if is_odd():
            ReducesInWait.wait(self)
            self.exchange_counts()
        else:
            super().wait()


@reported(
    "launched-as-ready",
    "NVIDIA/Megatron-LM#107",
    trigger="2 ranks, 2 buckets of one size",
    violates="collectives_match_across_ranks",
    cause="bucket_mismatch",
    # Buckets of other dtypes or sizes differ in what is sent already.
    or_cause="collective_mismatch",
)
class SwapsBuckets(ReducesInWait):
    """Buckets are launched as they become ready, which differs between ranks."""

    @override
    def order(self) -> list[Bucket]:
        return self.buckets[::-1] if is_odd() else self.buckets


class TellsNeighbour(ReducesInWait):
    """Right: ranks of a pair send each other a number, in one batch."""

    @override
    def wait(self) -> None:
        for group in self.buckets[0].groups[:1]:
            peer = group.rank() ^ 1
            if peer < group.size():
                self.exchange(peer, group)
        super().wait()

    def exchange(self, peer: int, group: dist.ProcessGroup) -> None:
        """Send to a rank, and receive from it."""
        messages = [
            dist.P2POp(dist.isend, torch.ones(1), group=group, group_peer=peer),
            dist.P2POp(dist.irecv, torch.empty(1), group=group, group_peer=peer),
        ]
        for work in dist.batch_isend_irecv(messages):
            work.wait()


@reported(
    "messages-one-by-one",
    "NVIDIA/nccl#479",
    trigger="2 ranks that send before they receive",
    violates="launch_order_agrees",
    cause="opposing_messages",
    silent=False,
)
class TellsNeighbourOneByOne(TellsNeighbour):
    """Both ranks send before they receive, and messages of a pair run one by one."""

    @override
    def exchange(self, peer: int, group: dist.ProcessGroup) -> None:
        works = [
            dist.isend(torch.ones(1), group=group, group_dst=peer),
            dist.irecv(torch.empty(1), group=group, group_src=peer),
        ]
        for work in works:
            if work is not None:
                work.wait()


@reported(
    "packs-what-is-used",
    "pytorch/pytorch#174862",
    trigger="2 ranks, a parameter that one does not use",
    violates="every_wait_completes",
    cause="deadlock",
    # A rank that packs fewer gradients sends fewer elements.
    or_cause="collective_mismatch",
    silent=False,
)
class PacksWhatIsUsed(Careful):
    """Only gradients that came are packed, so that ranks pack different ones."""

    features = frozenset({"used=not_on_odd_ranks"})

    @override
    def launch(self, bucket: Bucket) -> None:
        self.num_launched += 1
        self.fork()
        named = slices(bucket.buffer, bucket.parameters)
        parts = [part for parameter, part in named if bucket.counts[parameter]]
        if not parts:
            return
        with torch.cuda.stream(self.comm):
            for group in bucket.groups:
                packed = torch.cat([part.reshape(-1) for part in parts])
                dist.all_reduce(packed, group=group)
                sizes = [part.numel() for part in parts]
                for part, summed in zip(parts, packed.split(sizes), strict=True):
                    part.copy_(summed.view(part.shape))


class PollsForCompletion(ReducesInWait):
    """Right: asks for the completion of a bucket until it is complete."""

    @override
    def finish(self, bucket: Bucket) -> None:
        while bucket.work is not None and not bucket.work.is_completed():
            pass
        super().finish(bucket)


@reported(
    "polls-for-absent-rank",
    "ai-dynamo/modelexpress#497",
    trigger="2 ranks, of which one skips a bucket that the other polls for",
    violates="every_wait_completes",
    cause="step_bound",
    # On two axes, the second reduction has no loop, and waits for the absent rank.
    or_cause="deadlock",
    silent=False,
)
class PollsForAbsentRank(PollsForCompletion):
    """The loop that asks for completion has no bound, and a rank is absent."""

    @override
    def order(self) -> list[Bucket]:
        return self.buckets[:-1] if is_odd() else self.buckets


class ReducesEachParameter(ReducesInWait):
    """Right: reduces gradient by gradient, in place."""

    @override
    def launch(self, bucket: Bucket) -> None:
        for parameter in bucket.parameters:
            for group in bucket.groups:
                dist.all_reduce(local_grad(parameter), group=group)


@reported(
    "rank-divergent-used-params",
    "pytorch/pytorch#158719",
    trigger="2 ranks that use one parameter each",
    violates="every_wait_completes",
    cause="deadlock",
    # The next collective of the other rank may come in its place.
    or_cause="collective_mismatch",
    silent=False,
)
class ReducesUsedParameters(ReducesEachParameter):
    """Only parameters that this rank's data used are reduced."""

    @override
    def order(self) -> list[Bucket]:
        unused = 0 if is_odd() else 1
        return [*self.buckets[:unused], *self.buckets[unused + 1 :]]


@reported(
    "rank-local-skip",
    "facebookresearch/fairscale#754",
    trigger="2 ranks, of which one skips a bucket",
    violates="every_wait_completes",
    cause="deadlock",
    # The next bucket of the rank that skips meets the one that it skipped.
    or_cause="collective_mismatch",
    silent=False,
)
class SkipsBucketsByItself(ReducesInWait):
    """A rank that finds its own gradients useless does not reduce them."""

    @override
    def order(self) -> list[Bucket]:
        return self.buckets[:-1] if is_odd() else self.buckets


@reported(
    "set-iteration-order",
    "NVIDIA/Megatron-LM#2218",
    trigger="2 ranks, 2 buckets",
    violates="collectives_match_across_ranks",
    cause="collective_mismatch",
    silent=False,
)
class ReducesInRankOrder(MainGrads):
    """Buckets are reduced in the order of a set, which differs between ranks."""

    @override
    def wait(self) -> None:
        if dist.get_rank() % 2:  # the effect of hashes of addresses, made repeatable
            self.buckets.reverse()
        super().wait()


@reported(
    "size-mismatch-does-not-hang",
    "NVIDIA/nccl#1417",
    trigger="2 ranks, a shard that is uneven, 2 replicated parameters",
    violates="collectives_match_across_ranks",
    cause="collective_mismatch",
)
class CutsByAllBytes(MainGrads):
    """The cap bounds all open buckets together, shards included.

    Shards differ in size between ranks, so that ranks cut in different places.
    """

    @override
    def plan(self) -> Iterator[list[nn.Parameter]]:
        kinds: dict[object, list[nn.Parameter]] = {}
        filled_bytes = 0
        for parameter in self.trainable():
            kinds.setdefault(self.kind_of(parameter), []).append(parameter)
            filled_bytes += local_bytes(parameter)
            if filled_bytes >= self.cap_bytes:
                yield from kinds.values()
                kinds, filled_bytes = {}, 0
        yield from kinds.values()


@reported(
    "two-communicators-unordered",
    "NVIDIA/nccl#195",
    trigger="2 ranks, a check on a communicator of its own",
    violates="launch_order_agrees",
    cause="deadlock_hazard",
    silent=False,
)
class ChecksInTurn(ViewBuckets):
    """A check for overflow uses a second communicator, at no fixed place in the order."""

    @override
    def bind(self) -> None:
        self.group = dist.new_group()
        self.checks: list[dist.Work] = []
        super().bind()

    @override
    def launch(self, bucket: Bucket) -> None:
        if dist.get_rank() % 2:  # the effect of separate threads, made repeatable
            super().launch(bucket)
            self.check()
        else:
            self.check()
            super().launch(bucket)

    def check(self) -> None:
        """Start to look for an overflow."""
        largest = torch.zeros(1)
        self.checks.append(
            dist.all_reduce(largest, dist.ReduceOp.MAX, group=self.group, async_op=True)
        )

    @override
    def wait(self) -> None:
        while self.checks:
            self.checks.pop().wait()
        super().wait()
