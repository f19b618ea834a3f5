"""Planted defects that need no search: ranks part ways in any scenario with two buckets.

Each stands below its correct twin. What makes the ranks differ (the data, a local flag,
a clock) is the rank's number here, to be repeatable.
"""

from collections.abc import Iterator

import torch
import torch.distributed as dist
from torch import nn

from syncverify.bugbank.bases.placements import local
from syncverify.bugbank.bases.view_buckets import Bucket, ViewBuckets


def is_odd() -> bool:
    return dist.get_rank() % 2 == 1


class ReducesInWait(ViewBuckets):
    """Launches nothing in backward, and bucket after bucket in `wait()`."""

    def on_accumulated(self, bucket: Bucket, parameter: nn.Parameter) -> None:
        pass

    def wait(self) -> None:
        for bucket in self.order():
            self.launch(bucket)
        super().wait()

    def order(self) -> list[Bucket]:
        return self.buckets


class SwapsBuckets(ReducesInWait):
    """Buckets are launched as they become ready, which differs between ranks.

    Source: NVIDIA/Megatron-LM#107.
    """

    def order(self) -> list[Bucket]:
        return self.buckets[::-1] if is_odd() else self.buckets


class SkipsBucketsByItself(ReducesInWait):
    """A rank that finds its own gradients useless does not reduce them.

    Source: facebookresearch/fairscale#754.
    """

    def order(self) -> list[Bucket]:
        return self.buckets[:-1] if is_odd() else self.buckets


class PollsForCompletion(ReducesInWait):
    """Asks whether a bucket is complete until it is."""

    def finish(self, bucket: Bucket) -> None:
        while bucket.work is not None and not bucket.work.is_completed():
            pass
        super().finish(bucket)


class PollsForAbsentRank(PollsForCompletion):
    """The loop that asks for completion has no bound, and a rank is absent.

    Source: ai-dynamo/modelexpress#497.
    """

    order = SkipsBucketsByItself.order


class ReducesEachParameter(ReducesInWait):
    """Reduces gradient by gradient, in place."""

    def launch(self, bucket: Bucket) -> None:
        for parameter in self.used(bucket):
            for group in bucket.groups:
                dist.all_reduce(local(parameter.grad), group=group)

    def used(self, bucket: Bucket) -> list[nn.Parameter]:
        return bucket.parameters


class ReducesUsedParameters(ReducesEachParameter):
    """Only parameters that this rank's data used are reduced.

    Source: pytorch/pytorch#158719.
    """

    def order(self) -> list[Bucket]:
        return self.buckets[1:2] if is_odd() else self.buckets[0:1]


class CutsAtItsOwnCap(ViewBuckets):
    """The order of parameters was agreed upon, sizes of buckets were not.

    Source: pytorch/pytorch#35137.
    """

    def plan(self) -> Iterator[list[nn.Parameter]]:
        for members in super().plan():
            if is_odd():
                yield from ([member] for member in members)
            else:
                yield members


class CountsFirst(ReducesInWait):
    """Exchanges how much each rank has to say, then reduces."""

    def wait(self) -> None:
        self.exchange_counts()
        super().wait()

    def exchange_counts(self) -> None:
        for group in self.buckets[0].groups[:1]:
            counts = torch.zeros(group.size(), dtype=torch.int64)
            dist.all_to_all_single(counts, torch.ones_like(counts), group=group)


class CountsAfterwardsAsWell(CountsFirst):
    """A hook's reduction on one rank meets another collective on the other.

    Source: pytorch/pytorch#72843.
    """

    def wait(self) -> None:
        if is_odd():
            ReducesInWait.wait(self)
            self.exchange_counts()
        else:
            super().wait()


class TellsNeighbour(ReducesInWait):
    """Pairs of ranks tell each other how much they have, both at once."""

    def wait(self) -> None:
        for group in self.buckets[0].groups[:1]:
            peer = group.rank() ^ 1
            if peer < group.size():
                self.exchange(peer, group)
        super().wait()

    def exchange(self, peer: int, group: dist.ProcessGroup) -> None:
        messages = [
            dist.P2POp(dist.isend, torch.ones(1), group=group, group_peer=peer),
            dist.P2POp(dist.irecv, torch.empty(1), group=group, group_peer=peer),
        ]
        for work in dist.batch_isend_irecv(messages):
            work.wait()


class TellsNeighbourOneByOne(TellsNeighbour):
    """Both ranks send before they receive, and messages of a pair run one by one.

    Source: NVIDIA/nccl#479.
    """

    def exchange(self, peer: int, group: dist.ProcessGroup) -> None:
        works = [
            dist.isend(torch.ones(1), group=group, group_dst=peer),
            dist.irecv(torch.empty(1), group=group, group_src=peer),
        ]
        for work in works:
            work.wait()
