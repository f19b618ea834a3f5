"""Only gradients that came are packed, so that ranks pack different ones.

Reported in pytorch/pytorch#174862.
"""

import torch
import torch.distributed as dist
from typing_extensions import override

from syncverify.bugbank.bases.careful import Careful
from syncverify.bugbank.bases.placements import slices
from syncverify.bugbank.bases.view_buckets import Bucket
from syncverify.bugbank.entry import reported


@reported(
    "pytorch/pytorch#174862",
    trigger="2 ranks, a parameter that one does not use",
    violates="every_wait_completes",
    cause="deadlock",
    # A rank that packs fewer gradients sends fewer elements.
    or_cause="collective_mismatch",
    silent=False,
    uses_streams=True,
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
