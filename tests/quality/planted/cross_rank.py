"""Planted defects in which ranks stop agreeing on what they exchange."""

from collections.abc import Iterator

import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.tensor import DTensor

from syncverify.bugbank.bases.main_grads import Bucket, MainGrads
from syncverify.bugbank.bases.placements import local_bytes
from syncverify.bugbank.bases.view_buckets import Bucket as ViewBucket
from syncverify.bugbank.bases.view_buckets import ViewBuckets


class ReducesInRankOrder(MainGrads):
    """Buckets are reduced in the order of a set, which differs between ranks.

    Source: NVIDIA/Megatron-LM#2218.
    """

    def wait(self) -> None:
        if dist.get_rank() % 2:  # what hashes of addresses do, made repeatable
            self.buckets.reverse()
        super().wait()


class CutsByAllBytes(MainGrads):
    """The cap bounds all open buckets together, shards included.

    Shards differ in size between ranks, so that ranks cut in different places.

    Source: NVIDIA/nccl#1417.
    """

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


class TakesAxesInTurn(MainGrads):
    """Half of the ranks start with the other axis, to keep all links busy.

    Source: meta-pytorch/torchrec#4149.
    """

    def reduce(self, bucket: Bucket) -> None:
        (parameter, *_) = bucket.slots
        if isinstance(parameter, DTensor):
            row_and_column = parameter.device_mesh.get_coordinate()
            if sum(row_and_column) % 2:
                bucket.groups = bucket.groups[::-1]
        super().reduce(bucket)


class ChecksAtTheEnd(ViewBuckets):
    """Correct: a check for overflow, on a communicator of its own, comes last."""

    def bind(self) -> None:
        self.group = dist.new_group()
        self.checks: list[dist.Work] = []
        super().bind()

    def check(self) -> None:
        largest = torch.zeros(1)
        self.checks.append(
            dist.all_reduce(largest, dist.ReduceOp.MAX, group=self.group, async_op=True)
        )

    def wait(self) -> None:
        super().wait()
        self.check()
        self.finish_checks()

    def finish_checks(self) -> None:
        while self.checks:
            self.checks.pop().wait()


class ChecksInTurn(ChecksAtTheEnd):
    """A check for overflow has no place in the order of the other collectives.

    Source: NVIDIA/nccl#195.
    """

    def launch(self, bucket: ViewBucket) -> None:
        if dist.get_rank() % 2:  # what threads of their own do, made repeatable
            super().launch(bucket)
            self.check()
        else:
            self.check()
            super().launch(bucket)

    def wait(self) -> None:
        self.finish_checks()
        ViewBuckets.wait(self)
