"""Planted defects in which ranks stop agreeing on what they exchange."""

from collections.abc import Iterator

import torch.distributed as dist
from planted.main_grads import Bucket, MainGrads, kind_of
from planted.placements import local_bytes
from torch import nn
from torch.distributed.tensor import DTensor


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
            kinds.setdefault(kind_of(parameter), []).append(parameter)
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
