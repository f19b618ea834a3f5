"""A right synchronizer of copied buckets, of which tests change how one is packed and unpacked."""

from collections.abc import Sequence
from typing import Any

import torch
import torch.distributed as dist
from typing_extensions import override

from tests.syncverify.repair.flat_buckets import FlatBuckets


class CopiedBuckets(FlatBuckets):
    """Packs a bucket when it is complete, and unpacks it in `wait()`."""

    @override
    def launch(self, bucket: Any) -> None:
        parts = [each.grad.to_local() for each in bucket["parameters"]]
        flat, work = self.pack(parts), None
        for axis in bucket["axes"]:
            if work is not None:
                work.wait()
            group = bucket["parameters"][0].device_mesh.get_group(axis)
            work = dist.all_reduce(flat, group=group, async_op=True)
        self.pending.append((flat, parts, work))
        bucket["ready"].clear()

    def pack(self, parts: Sequence[torch.Tensor]) -> torch.Tensor:
        """Return a flat copy of gradients."""
        return torch.cat([part.reshape(-1) for part in parts])

    def unpack(self, flat: torch.Tensor, parts: Sequence[torch.Tensor]) -> None:
        """Copy sums back to gradients."""
        start = 0
        for part in parts:
            part.copy_(flat[start : start + part.numel()].view_as(part))
            start += part.numel()

    def copy_back(self) -> None:
        """Finish all buckets that were launched."""
        for flat, parts, work in self.pending:
            work.wait()
            self.unpack(flat, parts)
        self.pending.clear()

    @override
    def wait(self) -> None:
        self.copy_back()
        for parameter in self.count:
            self.count[parameter] = 0
