"""Memory regions, the exact bytes of a storage that a tensor consists of, and slots in buffers.

Two tensors of one storage conflict only where they share a byte. Ranges of addresses are not
enough: two columns of a matrix have overlapping ranges and share no byte.

Two ranks may contribute buffers of the same size, dtype and shape that hold the gradients of
different parameters. The reduction then adds unrelated numbers; slots show it.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

import torch
from typing_extensions import override


@dataclass(frozen=True, slots=True)
class MemoryRegion:
    """Bytes of one storage: equal runs, repeated at regular distances.

    Example: a column of a row-major float32 matrix of shape (3, 4) has runs of 4 bytes and
    the repeats ((3, 16),).
    """

    storage: int  # its number, in order of first appearance on its rank
    start_byte: int  # offset in the storage
    end_byte: int  # one past the last byte
    # Counts and distances in bytes, outermost first.
    repeats: tuple[tuple[int, int], ...] = ()

    def overlaps(self, other: "MemoryRegion") -> bool:
        """Tell whether the two regions share a byte."""
        first_shared = max(self.start_byte, other.start_byte)
        end_shared = min(self.end_byte, other.end_byte)
        if self.storage != other.storage or first_shared >= end_shared:
            return False
        if not self.repeats and not other.repeats:
            return True
        return _share_a_byte(self.runs(), other.runs())

    def runs(self) -> list[tuple[int, int]]:
        """List the runs as (first byte, one past the last), in order."""
        reach = sum((count - 1) * distance for count, distance in self.repeats)
        length = self.end_byte - self.start_byte - reach
        starts = [self.start_byte]
        for count, distance in self.repeats:
            starts = [each + i * distance for each in starts for i in range(count)]
        return sorted((start, start + length) for start in starts)


def overlap(some: Iterable[MemoryRegion], others: Sequence[MemoryRegion]) -> bool:
    """Tell whether a region of the first ones shares a byte with one of the others."""
    return any(one.overlaps(other) for one in some for other in others)


def tensor_region(
    tensor: torch.Tensor, storage: int, first_byte: int = 0
) -> MemoryRegion:
    """Return the bytes of a strided tensor whose storage begins at a first byte."""
    width = tensor.element_size()
    offset = int(tensor.storage_offset())
    if tensor.is_contiguous():
        start = first_byte + offset * width
        return MemoryRegion(storage, start, start + tensor.numel() * width)
    return strided_region(
        storage, offset, tensor.shape, tensor.stride(), width, first_byte
    )


def has_memory(tensor: torch.Tensor) -> bool:
    """Tell whether a storage has all bytes of its tensor, which `resize_` may give back."""
    end = tensor_region(tensor, 0).end_byte
    return not tensor.numel() or end <= tensor.untyped_storage().nbytes()


def strided_region(
    storage: int,
    offset_numel: int,
    shape: Sequence[int],
    strides: Sequence[int],
    width_bytes: int,
    first_byte: int = 0,
) -> MemoryRegion:
    """Return the bytes of a tensor of a known layout; strides are in elements, one per dim."""
    start = first_byte + offset_numel * width_bytes
    if 0 in shape:
        return MemoryRegion(storage, start, start)
    dims = [
        (size, stride * width_bytes)
        for size, stride in zip(shape, strides, strict=True)
        if size > 1 and stride  # an expanded dim has stride 0, and adds no byte
    ]
    # From the innermost dim outwards: dims without gaps grow the run, others repeat it.
    run, repeats = width_bytes, list[tuple[int, int]]()
    for size, distance in sorted(dims, key=lambda dim: dim[1]):
        if distance == run and not repeats:
            run *= size
        else:
            repeats.insert(0, (size, distance))
    reach = sum((size - 1) * distance for size, distance in repeats)
    return MemoryRegion(storage, start, start + reach + run, tuple(repeats))


def _share_a_byte(left: list[tuple[int, int]], right: list[tuple[int, int]]) -> bool:
    """Tell whether two sorted lists of runs (start, end) share a byte, by one merge."""
    one, other = 0, 0
    while one < len(left) and other < len(right):
        (left_start, left_end), (right_start, right_end) = left[one], right[other]
        if left_start < right_end and right_start < left_end:
            return True
        if left_end <= right_end:
            one += 1
        else:
            other += 1
    return False


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
