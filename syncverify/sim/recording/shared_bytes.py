"""Storages that lie over the same bytes: views through NumPy, DLPack or a buffer.

Note [Two storages, one memory]
    `from_dlpack`, `from_numpy` and `frombuffer` make a storage over bytes that something else
    allocated, so two storages may have a byte in common. Both then have one number, and each has
    the position of its first byte. The memory is free when the last of them is gone.

    torch's own allocations do not overlap, and can be resized. A storage over the bytes of others
    cannot. So addresses are compared from the first such storage on, and other ranks pay nothing.

    Not seen: the same bytes at two addresses, as after two `mmap` of a file; bytes of a storage
    that an operator has made larger, as `out=` does.

Source:
    `from_blob` in ATen/templates/Functions.h and `for_blob` in ATen/ops/from_blob.h;
    `fromDLPack` in ATen/DLConvertor.cpp; `tensor_from_numpy` in torch/csrc/utils/tensor_numpy.cpp.
"""

from __future__ import annotations

import bisect
from collections.abc import Iterator
from dataclasses import dataclass, field


@dataclass(slots=True, eq=False)
class Memory:
    """Bytes that one storage has, or several that overlap.

    Attributes:
        start: Address of the first byte.
        end: One past the last address.
        number: Number that the storages have.
        origin: Address of byte 0 of the storage that got the number.
        members: Keys of the living storages.
    """

    start: int
    end: int
    number: int
    origin: int
    members: set[int] = field(default_factory=set)


class Addresses:
    """The memories of living storages, in the order of their addresses."""

    def __init__(self) -> None:
        # Memories share no byte with each other.
        self._memories: list[Memory] = []
        self._of: dict[int, Memory] = {}

    def place(
        self, key: int, number: int, address: int, num_bytes: int
    ) -> list[Memory]:
        """Add a storage to the memories with which it shares a byte, or as a new one.

        Args:
            key: Key of the storage.
            number: Its number, if its memory is new.
            address: Address of its first byte.
            num_bytes: Its size.

        Returns:
            The memories that were there, in the order of their numbers; the first one has all
            of their storages now.
        """
        if not num_bytes:
            return []
        found = sorted(
            self._overlapping(address, address + num_bytes), key=lambda one: one.number
        )
        memory = Memory(address, address + num_bytes, number, address)
        if found:
            memory.number, memory.origin = found[0].number, found[0].origin
        for one in found:
            self._leave_out(one)
            memory.start, memory.end = (
                min(memory.start, one.start),
                max(memory.end, one.end),
            )
            memory.members |= one.members
        memory.members.add(key)
        self._of.update(dict.fromkeys(memory.members, memory))
        bisect.insort(self._memories, memory, key=_start)
        return found

    def remove(self, key: int) -> bool:
        """Remove a storage; tell whether its memory is free now."""
        memory = self._of.pop(key, None)
        if memory is None:
            return True
        memory.members.discard(key)
        if memory.members:
            return False
        self._leave_out(memory)
        return True

    def _leave_out(self, memory: Memory) -> None:
        del self._memories[bisect.bisect_left(self._memories, memory.start, key=_start)]

    def _overlapping(self, start: int, end: int) -> Iterator[Memory]:
        index = bisect.bisect_right(self._memories, start, key=_start)
        if index and self._memories[index - 1].end > start:
            index -= 1
        while index < len(self._memories) and self._memories[index].start < end:
            if self._memories[index].end > start:
                yield self._memories[index]
            index += 1


def _start(memory: Memory) -> int:
    return memory.start
