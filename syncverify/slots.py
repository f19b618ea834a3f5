"""Which parameters' gradients lie where in what a rank contributes to a collective.

Two ranks may hand in buffers of one size, dtype and shape, and still not the same ones.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from typing_extensions import override

from syncverify.memory import MemoryRegion


@dataclass(frozen=True, slots=True)
class ParameterSlot:
    """Where a parameter's gradient lies in what a rank contributes to a collective.

    Attributes:
        parameter: Its name.
        offset_bytes: From the start of the contribution to the gradient's first byte;
            negative if the contribution starts in the middle of the gradient.
        num_bytes: From its first byte to its last, gaps included.
    """

    parameter: str
    offset_bytes: int
    num_bytes: int

    @property
    def end_byte(self) -> int:
        """Return the offset of one past the gradient's last byte."""
        return self.offset_bytes + self.num_bytes

    @override
    def __str__(self) -> str:
        """Say it in words."""
        return f"{self.parameter} at byte {self.offset_bytes}"


def find_slots(
    gradients: Mapping[str, MemoryRegion], contribution: Sequence[MemoryRegion]
) -> tuple[ParameterSlot, ...]:
    """Find gradients in a contribution.

    Args:
        gradients: Memory of each parameter's gradient, by name.
        contribution: Memory that a rank contributes; several tensors count as if they
            lay one behind the other.

    Returns:
        One slot for each gradient and tensor that share a byte.
    """
    slots: list[ParameterSlot] = []
    offset_bytes = 0
    for region in contribution:
        for name, own in gradients.items():
            if own.overlaps(region):
                start = offset_bytes + own.start_byte - region.start_byte
                length = own.end_byte - own.start_byte
                slots.append(ParameterSlot(name, start, length))
        offset_bytes += region.end_byte - region.start_byte
    return tuple(dict.fromkeys(slots))
