"""The check of a bucket for values that are not finite, before and after the sum.

The check does not wait for a device: flags stay on the device until `wait()` reads
them. On each device it launches one small kernel for each parameter, which reads the
gradient once.
"""

import torch

from syncverify.synchronizer.plan.grouping import BucketPlan
from syncverify.synchronizer.plan.ownership import owned_part

# Names of parameters, each with the elements of its gradient in the buffer.
_Parts = tuple[tuple[str, range], ...]


class FiniteCheck:
    """Finds values that are not finite in a bucket, before and after its reduction."""

    def __init__(self, plan: BucketPlan, owned: range) -> None:
        self._local_parts = _parts(plan, range(plan.buffer_numel))
        self._sum_parts = _parts(plan, owned) if plan.scope else ()
        self._local: torch.Tensor | None = None
        self._sums: torch.Tensor | None = None

    def check_local(self, buffer: torch.Tensor) -> None:
        """Check this rank's gradients on the current stream, before the reduction."""
        self._local = _are_nonfinite(buffer, self._local_parts)

    def check_sums(self, buffer: torch.Tensor) -> None:
        """Check the sums that this rank owns on the current stream."""
        self._sums = _are_nonfinite(buffer, self._sum_parts)

    def nonfinite_local(self) -> list[str]:
        """Name this rank's parameters with a bad gradient; waits for the device."""
        return _named(self._local_parts, self._local)

    def nonfinite_sums(self) -> list[str]:
        """Name the parameters with a bad sum; waits for the device."""
        return _named(self._sum_parts, self._sums)


def _parts(plan: BucketPlan, elements: range) -> _Parts:
    members = zip(plan.members, plan.offsets_numel, strict=True)
    parts = [(m.name, owned_part(m, offset, elements)) for m, offset in members]
    return tuple((name, part) for name, part in parts if part)


def _are_nonfinite(buffer: torch.Tensor, parts: _Parts) -> torch.Tensor | None:
    """Return for each part whether it holds a NaN or an infinity, on the device.

    Both show in the extremes, which need one pass and no memory: an infinity is an
    extreme, and a NaN makes both extremes NaN.
    """
    extremes = [
        extreme
        for _, part in parts
        for extreme in torch.aminmax(_reals(buffer[part.start : part.stop]))
    ]
    if not extremes:
        return None
    return torch.stack(extremes).isfinite().logical_not().view(-1, 2).any(dim=1)


def _reals(flat: torch.Tensor) -> torch.Tensor:
    return torch.view_as_real(flat) if flat.is_complex() else flat


def _named(parts: _Parts, are_nonfinite: torch.Tensor | None) -> list[str]:
    flags = [] if are_nonfinite is None else are_nonfinite.tolist()
    return [
        name
        for (name, _), is_nonfinite in zip(parts, flags, strict=False)
        if is_nonfinite
    ]
