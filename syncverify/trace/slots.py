"""Slots: the places of gradients in a rank's contribution to a collective.

Two ranks may contribute buffers of the same size, dtype and shape that hold the gradients of
different parameters. The reduction then adds unrelated numbers; slots show it.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from typing_extensions import override

from syncverify.trace.regions import MemoryRegion


@dataclass(frozen=True, slots=True)
class ParameterSlot:
    """Place of a parameter's gradient in a rank's contribution to a collective."""

    parameter: str
    # From the start of the contribution to the gradient's first byte; negative if the
    # contribution starts in the middle of the gradient.
    offset_bytes: int
    num_bytes: int  # from the gradient's first byte to its last, gaps included

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
    """Return a slot for each pair of a gradient and a contributed tensor that share a byte.

    Several contributed tensors count as one buffer, in order.
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
