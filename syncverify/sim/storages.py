"""The storages of one rank: where they come from, who touches them, when they go away.

Note [When a storage goes away]
    A storage's Python object lives as long as the storage itself, whoever holds it, C++
    included: torch preserves it. So a weak reference to it tells the very moment at which
    the memory goes back, and its `id` names the storage until then. A test says so.
    Collection of cycles is off during a run, since it would come at any moment.
"""

from __future__ import annotations

import weakref
from collections.abc import Callable

import torch
from typing_extensions import override

from syncverify.memory import MemoryRegion, tensor_region
from syncverify.recorder import StorageNumbers
from syncverify.trace import DEFAULT_STREAM

_NOWHERE = "nowhere"


class Storage(weakref.ref[torch.UntypedStorage]):
    """A storage, referred to weakly.

    Attributes:
        number: In order of appearance.
        key: What finds it while it lives.
        stream: Stream whose pool its memory comes from.
        is_on_device: Whether a GPU would hold it. Of memory that nobody told, and of
            integers that were computed from such, we think that the host does: so are the
            ranks of a mesh.
        is_shared: Whether more than one stream has had to do with it.
        recorded_streams: Of `Tensor.record_stream`, as the subject calls it.
        engine_streams: Of the same, as autograd calls it.
        num_bytes: Its size, which nobody can ask for any more when it went away.
    """

    __slots__ = (
        "engine_streams",
        "is_on_device",
        "is_shared",
        "key",
        "num_bytes",
        "number",
        "recorded_streams",
        "stream",
    )

    number: int
    key: int
    stream: str
    is_on_device: bool
    is_shared: bool
    recorded_streams: tuple[str, ...]
    engine_streams: tuple[str, ...]
    num_bytes: int

    def touch(self, stream: str) -> None:
        """Note that something on a stream uses it."""
        if stream != self.stream and self.stream is not _NOWHERE:
            self.is_shared = True

    def record_stream(self, stream: str) -> None:
        """Note that its memory must not go back before a stream is done with it.

        Source:
            `recordStream` in c10/cuda/CUDACachingAllocator.cpp: of the stream that the
            memory comes from it takes no note.
        """
        self.touch(stream)
        if stream != self.stream and stream not in self.recorded_streams:
            self.recorded_streams += (stream,)

    def record_consumer(self, stream: str) -> None:
        """Note that autograd gives it to a node on a stream, and records that stream."""
        self.touch(stream)
        if stream != self.stream and stream not in self.engine_streams:
            self.engine_streams += (stream,)


class StorageTable(StorageNumbers):
    """All storages that a rank has had to do with.

    Args:
        on_freed: Called when one goes away.
    """

    def __init__(self, on_freed: Callable[[Storage], None]) -> None:
        super().__init__()
        self._living: dict[int, Storage] = {}
        self._count = 0
        # Stands for all memory that does not exist.
        self._no_memory = torch.UntypedStorage(0)
        self._nowhere = self._add(self._no_memory, _NOWHERE)
        self._on_freed: Callable[[Storage], None] | None = on_freed

    def of(self, tensor: torch.Tensor, stream: str = DEFAULT_STREAM) -> Storage:
        """Find the storage of a tensor.

        Args:
            tensor: Any that has one.
            stream: Where the storage was allocated, if it is new.

        Returns:
            What is known of it.
        """
        try:
            storage = tensor.untyped_storage()
        except NotImplementedError:  # sparse, and other layouts without a place
            return self._nowhere
        return self._living.get(id(storage)) or self._meet(tensor, storage, stream)

    def _meet(
        self, tensor: torch.Tensor, storage: torch.UntypedStorage, stream: str
    ) -> Storage:
        if tensor.is_meta:  # there is no memory
            return self._nowhere
        met = self._add(storage, stream)
        met.is_on_device = tensor.is_floating_point() or tensor.is_complex()
        return met

    @property
    def num_seen(self) -> int:
        """How many there have been; the next new one gets this number."""
        return self._count

    @override
    def region(self, tensor: torch.Tensor) -> MemoryRegion:
        return tensor_region(tensor, self.of(tensor).number)

    def resized(self, storage: torch.UntypedStorage, stream: str) -> None:
        """Note that a storage gave its memory back, or got other memory."""
        known = self._living.get(id(storage))
        if known is not None:
            self._forget(known)
        if storage.nbytes():
            self._add(storage, stream)

    def close(self) -> None:
        """Forget everything; whatever goes away from now on is nobody's business."""
        self._on_freed = None
        self._living.clear()

    def _add(self, storage: torch.UntypedStorage, stream: str) -> Storage:
        added = Storage(storage, self._forget)
        added.number = self._count
        added.key = id(storage)
        added.stream = stream
        added.is_on_device = True
        added.is_shared = False
        added.recorded_streams = added.engine_streams = ()
        added.num_bytes = storage.nbytes()
        self._count += 1
        self._living[added.key] = added
        return added

    def _forget(self, storage: weakref.ref[torch.UntypedStorage]) -> None:
        assert isinstance(storage, Storage)
        if self._on_freed is not None and self._living.get(storage.key) is storage:
            del self._living[storage.key]
            self._on_freed(storage)
