"""The storages of one rank: their pools, the streams that use them, and their frees.

Note [When a storage goes away]
    torch keeps the Python object of a storage alive as long as the storage, even if only
    C++ code holds it. So a weak reference to the object tells the exact moment at which the
    memory goes back to its pool, and the object's `id` names the storage until then. A test
    says so. The cycle collector is off during a run, since it could free memory at any
    moment.

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

import bisect
import weakref
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from operator import attrgetter

import torch
from typing_extensions import override

from syncverify.trace.recorder import StorageNumbers
from syncverify.trace.records import DEFAULT_STREAM
from syncverify.trace.regions import MemoryRegion, tensor_region
from syncverify.trace.source_lines import NoLine, Origin
from syncverify.trace.stacks import RawFrames, ordering_line, subject_frames


@dataclass(slots=True, eq=False)
class Memory:
    """Bytes that one storage has, or several that overlap."""

    start: int  # address of the first byte
    end: int  # one past the last address
    number: int  # of the storages
    origin: int  # address of byte 0 of the storage that got the number
    members: set[int] = field(default_factory=set)  # keys of the living storages


class Addresses:
    """The memories of living storages, in the order of their addresses."""

    def __init__(self) -> None:
        # Memories share no byte with each other, so their ends are in order, too.
        self._memories: list[Memory] = []
        self._of: dict[int, Memory] = {}

    def place(
        self, key: int, number: int, address: int, num_bytes: int
    ) -> list[Memory]:
        """Return the memories with which a new storage shares a byte, in the order of numbers.

        The first one has all of their storages now. Without one, the storage is a new memory,
        with its `number`.
        """
        if not num_bytes:
            return []
        end = address + num_bytes
        first = bisect.bisect_right(self._memories, address, key=attrgetter("end"))
        last = bisect.bisect_left(self._memories, end, key=attrgetter("start"))
        found = sorted(self._memories[first:last], key=attrgetter("number"))
        memory = Memory(address, end, number, address)
        if found:
            memory.number, memory.origin = found[0].number, found[0].origin
        for one in found:
            memory.start = min(memory.start, one.start)
            memory.end = max(memory.end, one.end)
            memory.members |= one.members
        memory.members.add(key)
        self._of.update(dict.fromkeys(memory.members, memory))
        self._memories[first:last] = [memory]
        return found

    def remove(self, key: int) -> bool:
        """Remove a storage; tell whether its memory is free now."""
        memory = self._of.pop(key, None)
        if memory is None:
            return True
        memory.members.discard(key)
        if memory.members:
            return False
        at = bisect.bisect_left(self._memories, memory.start, key=attrgetter("start"))
        del self._memories[at]
        return True


# The number of a memory, and the position of a byte in it.
PartsOfMemory = Mapping[int, tuple[int, int]]
NO_PARTS: PartsOfMemory = {}
_NOWHERE = "nowhere"


class Storage(weakref.ref[torch.UntypedStorage]):
    """A storage, referred to weakly."""

    __slots__ = (
        "engine_streams", "first_byte", "is_on_device", "is_shared", "key", "made_at",
        "num_bytes", "number", "recorded_at", "recorded_streams", "stream",
    )  # fmt: skip

    number: int  # of the memory on its rank, in order of appearance
    # Position of its first byte in that memory; see Note [Two storages, one memory].
    first_byte: int
    key: int  # `id` of the storage object, unique while the storage lives
    stream: str  # that allocated the memory, which goes back to its pool
    # Whether a GPU would hold the memory. Integer storages count as host memory unless an
    # operator reads device memory to fill them (example: mesh ranks).
    is_on_device: bool
    is_shared: bool  # more than one stream has used the storage
    # Of the subject's calls of `Tensor.record_stream`.
    recorded_streams: tuple[str, ...]
    recorded_at: tuple[Origin, ...]  # line of the first call for each of them
    engine_streams: tuple[str, ...]  # of autograd's calls of the same function
    num_bytes: int  # kept because a freed storage has none
    # Lines that called the operator which allocated it, or its origin if none did.
    made_at: RawFrames | NoLine

    def touch(self, stream: str) -> None:
        """Note a use of the storage on a stream."""
        if stream != self.stream and self.stream is not _NOWHERE:
            self.is_shared = True

    def record_stream(self, stream: str) -> None:
        """Note that the memory must not be reused before a stream is done with it.

        Source:
            `recordStream` in c10/cuda/CUDACachingAllocator.cpp: it ignores the stream that
            allocated the memory, since the pool's own order covers that stream.
        """
        self.touch(stream)
        if stream != self.stream and stream not in self.recorded_streams:
            self.recorded_streams += (stream,)
            self.recorded_at += (ordering_line(),)

    def record_consumer(self, stream: str) -> None:
        """Note that autograd passes the storage to a node on a stream, and records the stream."""
        self.touch(stream)
        if stream != self.stream and stream not in self.engine_streams:
            self.engine_streams += (stream,)


class StorageTable(StorageNumbers):
    """All storages that a rank has used; `on_freed` is called when memory goes away."""

    def __init__(self, on_freed: Callable[[Storage], None]) -> None:
        super().__init__()
        self._living: dict[int, Storage] = {}
        self.num_seen = 0  # so far; the next new one gets this number
        # None until a storage lies over the bytes of others.
        self._addresses: Addresses | None = None
        # By number of a memory that turned out to be a part of another one: the number of that
        # one, and the position of its first byte there.
        self.moved: dict[int, tuple[int, int]] = {}
        # Stands for the memory of tensors without any: meta tensors and other layouts.
        self._no_memory = torch.UntypedStorage(0)
        self._nowhere = self.add(self._no_memory, _NOWHERE)
        self._on_freed: Callable[[Storage], None] | None = on_freed

    def of(self, tensor: torch.Tensor, stream: str = DEFAULT_STREAM) -> Storage:
        """Return the storage of a tensor; a new one counts as allocated on `stream`."""
        try:
            storage = tensor.untyped_storage()
        except NotImplementedError:  # sparse, and other layouts without a place
            return self._nowhere
        known = self._living.get(id(storage))
        if known is not None:
            return known
        if tensor.is_meta:  # there is no memory
            return self._nowhere
        # Where an integer came from is not known here: see `Storage.is_on_device`.
        is_on_device = tensor.is_floating_point() or tensor.is_complex()
        return self.add(storage, stream, is_on_device=is_on_device)

    def known(self, storage: torch.UntypedStorage) -> Storage | None:
        """Return a storage whose bytes operators have used; None for any other."""
        known = self._living.get(id(storage))
        if known is None and self._addresses is not None and not storage.resizable():
            return self.add(storage, DEFAULT_STREAM)
        return known

    @property
    def num_living_bytes(self) -> int:
        """Bytes of all storages that were used and not freed."""
        return sum(storage.num_bytes for storage in self._living.values())

    @override
    def region(self, tensor: torch.Tensor) -> MemoryRegion:
        storage = self.of(tensor)
        return tensor_region(tensor, storage.number, storage.first_byte)

    def resized(self, storage: torch.UntypedStorage, stream: str) -> None:
        """Note that `resize_` gave the memory back, or allocated other memory."""
        known = self._living.get(id(storage))
        if known is not None:
            self._forget(known)
        if storage.nbytes():
            self.add(storage, stream).made_at = subject_frames() or NoLine.UNKNOWN

    def close(self) -> None:
        """Forget all storages; later frees are not reported."""
        self._on_freed = None
        self._living.clear()

    def add(
        self, storage: torch.UntypedStorage, stream: str, *, is_on_device: bool = True
    ) -> Storage:
        """Number a storage that is new, or whose memory is."""
        added = Storage(storage, self._forget)
        added.number, added.first_byte, added.key = self.num_seen, 0, id(storage)
        added.stream, added.is_on_device, added.is_shared = stream, is_on_device, False
        added.recorded_streams = added.engine_streams = ()
        added.recorded_at = ()
        added.num_bytes = storage.nbytes()
        added.made_at = NoLine.UNKNOWN
        if self._addresses is not None or not storage.resizable():
            self._place(added)
        if added.number == self.num_seen:
            self.num_seen += 1
        self._living[added.key] = added
        return added

    def _place(self, added: Storage) -> None:
        """Give a storage the number of the memory in which it lies, if that has one."""
        if self._addresses is None:
            self._addresses = Addresses()
            for earlier in self._living.values():
                self._addresses.place(*_bytes_of(earlier))
        key, number, address, num_bytes = _bytes_of(added)
        memories = self._addresses.place(key, number, address, num_bytes)
        if not memories:
            return
        whole, *parts = memories
        added.number, added.first_byte = whole.number, address - whole.origin
        for part in parts:
            self.moved[part.number] = whole.number, part.origin - whole.origin
        twins = [self._living[k] for one in memories for k in one.members if k != key]
        added.stream, added.is_on_device = twins[0].stream, twins[0].is_on_device
        for storage in (added, *twins):
            storage.is_shared = True

    def _forget(self, storage: weakref.ref[torch.UntypedStorage]) -> None:
        assert isinstance(storage, Storage)
        if self._on_freed is not None and self._living.get(storage.key) is storage:
            del self._living[storage.key]
            if self._addresses is None or self._addresses.remove(storage.key):
                self._on_freed(storage)


def _bytes_of(storage: Storage) -> tuple[int, int, int, int]:
    """Return the key of a storage, its number, its address and its size."""
    own = storage()
    if own is None or own.device.type != "cpu" or not own.nbytes():
        return storage.key, storage.number, 0, 0
    return storage.key, storage.number, own.data_ptr(), own.nbytes()
