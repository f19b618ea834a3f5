"""Which gradients of a bucket are not finite, before and after they are summed.

Nothing here waits for a device: the answers stay on it until `wait()` reads them. On
each device of a bucket that is one small kernel for each parameter, which reads its
gradient once.
"""

import torch

from .grouping import BucketPlan
from .ownership import owned_part

# Names of parameters, and where in the buffer their gradients are.
_Parts = tuple[tuple[str, range], ...]


class FiniteCheck:
    """Looks for values that are not finite in one bucket.

    Args:
        plan: Of the bucket.
        owned: Indices of the elements that this rank owns after the reduction.
    """

    def __init__(self, plan: BucketPlan, owned: range) -> None:
        self._own_parts = _parts(plan, range(plan.buffer_numel))
        self._sum_parts = _parts(plan, owned) if plan.scope else ()
        self._own: torch.Tensor | None = None
        self._sums: torch.Tensor | None = None

    def look_at_own(self, buffer: torch.Tensor) -> None:
        """Look at this rank's gradients on the current stream; not reduced yet.

        Args:
            buffer: Shape (N,).
        """
        self._own = _are_bad(buffer, self._own_parts)

    def look_at_sums(self, buffer: torch.Tensor) -> None:
        """Look at what this rank owns of the sums on the current stream.

        Args:
            buffer: Shape (N,), reduced.
        """
        self._sums = _are_bad(buffer, self._sum_parts)

    def bad_own(self) -> list[str]:
        """Name the parameters with a bad gradient on this rank; waits for the device."""
        return _named(self._own_parts, self._own)

    def bad_sums(self) -> list[str]:
        """Name the parameters with a bad sum; waits for the device."""
        return _named(self._sum_parts, self._sums)


def _parts(plan: BucketPlan, elements: range) -> _Parts:
    members = zip(plan.members, plan.offsets_numel, strict=True)
    parts = [(m.name, owned_part(m, offset, elements)) for m, offset in members]
    return tuple((name, part) for name, part in parts if part)


def _are_bad(buffer: torch.Tensor, parts: _Parts) -> torch.Tensor | None:
    """Tell for each part whether it holds a NaN or an infinity.

    Both show in the extremes, which take a single pass and no memory; a NaN is both the
    smallest and the largest of whatever it is among.

    Returns:
        One flag for each part, on the buffer's device; None without parts.
    """
    extremes = [
        extreme
        for _, part in parts
        for extreme in torch.aminmax(buffer[part.start : part.stop])
    ]
    if not extremes:
        return None
    return torch.stack(extremes).isfinite().logical_not().view(-1, 2).any(dim=1)


def _named(parts: _Parts, are_bad: torch.Tensor | None) -> list[str]:
    flags = [] if are_bad is None else are_bad.tolist()
    return [name for (name, _), is_bad in zip(parts, flags, strict=False) if is_bad]
