"""The check of a bucket for values that are not finite, before or after the sum.

The check does not wait for a device: flags stay on the device until `wait()` reads
them. On each device it launches one small kernel for each parameter, which reads the
gradient once.
"""

import torch

from syncverify.synchronizer.plan.grouping import BucketPlan
from syncverify.synchronizer.plan.ownership import owned_part


class FiniteCheck:
    """Finds values that are not finite among the given elements of a bucket."""

    def __init__(self, plan: BucketPlan, elements: range) -> None:
        members = zip(plan.members, plan.offsets_numel, strict=True)
        parts = [(m.name, owned_part(m, offset, elements)) for m, offset in members]
        self._parts = [(name, part) for name, part in parts if part]
        # For each part whether it holds a NaN or an infinity, on the device.
        self._are_nonfinite: torch.Tensor | None = None

    def run(self, buffer: torch.Tensor) -> None:
        """Check the elements on the current stream.

        Both show in the extremes, which need one pass and no memory: an infinity is an
        extreme, and a NaN makes both extremes NaN.
        """
        if not self._parts:
            return
        extremes = [
            extreme
            for _, part in self._parts
            for extreme in torch.aminmax(_reals(buffer[part.start : part.stop]))
        ]
        flags = torch.stack(extremes).isfinite().logical_not()
        self._are_nonfinite = flags.view(-1, 2).any(dim=1)

    def nonfinite(self) -> list[str]:
        """Name the parameters with a bad value; waits for the device."""
        flags = self._are_nonfinite
        found = [] if flags is None else flags.tolist()
        return [name for (name, _), bad in zip(self._parts, found, strict=False) if bad]


def _reals(flat: torch.Tensor) -> torch.Tensor:
    return torch.view_as_real(flat) if flat.is_complex() else flat
