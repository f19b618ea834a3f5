"""The cap bounds all open buckets together, shards included.

Reported in NVIDIA/nccl#1417.
"""

from collections.abc import Iterator

from torch import nn
from typing_extensions import override

from syncverify.bugbank.bases.main_grads import MainGrads
from syncverify.bugbank.bases.placements import local_bytes
from syncverify.bugbank.entry import reported


@reported(
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
