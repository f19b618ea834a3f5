"""Planted defects in which gradient lies in which bucket."""

from collections.abc import Iterator

import torch
import torch.distributed as dist
from torch import nn

from syncverify.bugbank.bases.main_grads import Bucket, MainGrads
from syncverify.bugbank.bases.placements import local_bytes
from syncverify.bugbank.bases.view_buckets import ViewBuckets


class CountsFrozenParameters(ViewBuckets):
    """A frozen parameter has a place in a bucket, which never becomes complete.

    Source: pytorch/pytorch#14675.
    """

    def is_managed(self, parameter: nn.Parameter) -> bool:
        return True


class LosesLastBucket(MainGrads):
    """Buckets are sent when they are full; the last one, partly filled, never is.

    Source: facebookresearch/fairscale#435.
    """

    def reduce(self, bucket: Bucket) -> None:
        if sum(map(local_bytes, bucket.slots)) >= self.cap_bytes:
            super().reduce(bucket)


class FlushesWhatIsNotThere(ViewBuckets):
    """A parameter beyond the cap flushes the bucket before it, if there is one or not.

    Source: deepspeedai/DeepSpeed#1214.
    """

    def plan(self) -> Iterator[list[nn.Parameter]]:
        for members in super().plan():
            if local_bytes(members[0]) > self.cap_bytes:
                yield []
            yield members


class ShardsWithoutPadding(MainGrads):
    """Each rank reduces its share of a bucket, rounded down; the rest is nobody's.

    Source: NVIDIA/Megatron-LM#561.
    """

    def reduce(self, bucket: Bucket) -> None:
        for group in bucket.groups:
            share = bucket.buffer.numel() // group.size()
            covered = bucket.buffer[: share * group.size()]
            if share:
                shares = list(covered.split(share))
                reduced = torch.empty_like(shares[0])
                dist.reduce_scatter(reduced, shares, group=group)
                dist.all_gather(shares, reduced, group=group)
