"""Which bytes of a storage a tensor consists of, exactly.

Two tensors of one storage conflict only where they share a byte: the columns of a matrix
lie in the same range of addresses and share none.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import torch


@dataclass(frozen=True, slots=True)
class MemoryRegion:
    """Bytes of one storage: equal runs, repeated at regular distances.

    Attributes:
        storage: Number of the storage, in order of first appearance on its rank.
        start_byte: First byte.
        end_byte: One past the last byte.
        repeats: How often runs repeat, and at which distance in bytes, outermost first;
            empty for a single run.
    """

    storage: int
    start_byte: int
    end_byte: int
    repeats: tuple[tuple[int, int], ...] = ()

    def overlaps(self, other: MemoryRegion) -> bool:
        """Tell whether the two regions share a byte."""
        first_shared = max(self.start_byte, other.start_byte)
        end_shared = min(self.end_byte, other.end_byte)
        if self.storage != other.storage or first_shared >= end_shared:
            return False
        if not self.repeats and not other.repeats:
            return True
        return _runs_meet(self._runs(), other._runs())

    def _runs(self) -> list[tuple[int, int]]:
        """List the runs as (first byte, one past the last), in order."""
        reach = sum((count - 1) * distance for count, distance in self.repeats)
        length = self.end_byte - self.start_byte - reach
        indices = itertools.product(*(range(count) for count, _ in self.repeats))
        distances = [distance for _, distance in self.repeats]
        starts = (
            self.start_byte + sum(i * d for i, d in zip(index, distances, strict=True))
            for index in indices
        )
        return sorted((start, start + length) for start in starts)


def tensor_region(tensor: torch.Tensor, storage: int) -> MemoryRegion:
    """Return the bytes that a tensor consists of.

    Args:
        tensor: Strided, of any shape.
        storage: Number of its storage.
    """
    width = tensor.element_size()
    start = int(tensor.storage_offset())
    if tensor.is_contiguous():
        return MemoryRegion(storage, start * width, (start + tensor.numel()) * width)
    return strided_region(storage, start, tensor.shape, tensor.stride(), width)


def strided_region(
    storage: int,
    offset_numel: int,
    shape: Sequence[int],
    strides: Sequence[int],
    width_bytes: int,
) -> MemoryRegion:
    """Return the bytes that a tensor of a known layout consists of.

    Args:
        storage: Number of its storage.
        offset_numel: Elements of the storage before its first one.
        shape: Of the tensor.
        strides: In elements, one a dim.
        width_bytes: Of an element.
    """
    start = offset_numel * width_bytes
    if 0 in shape:
        return MemoryRegion(storage, start, start)
    dims = [
        (size, stride * width_bytes)
        for size, stride in zip(shape, strides, strict=True)
        if size > 1 and stride  # an expanded dim is the same bytes again
    ]
    run, repeats = width_bytes, list[tuple[int, int]]()
    for size, distance in sorted(dims, key=lambda dim: dim[1]):
        if distance == run and not repeats:
            run *= size
        else:
            repeats.insert(0, (size, distance))
    reach = sum((size - 1) * distance for size, distance in repeats)
    return MemoryRegion(storage, start, start + reach + run, tuple(repeats))


def _runs_meet(left: list[tuple[int, int]], right: list[tuple[int, int]]) -> bool:
    ahead: Iterator[tuple[int, int]] = iter(right)
    start, end = next(ahead)
    for own_start, own_end in left:
        while end <= own_start:
            following = next(ahead, None)
            if following is None:
                return False
            start, end = following
        if start < own_end:
            return True
    return False
