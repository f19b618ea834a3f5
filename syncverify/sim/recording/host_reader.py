"""Reads of the host that no operator shows: of a rank, and of the threads that it starts.

See Note [Bytes that leave torch].
"""

import weakref
from collections.abc import Callable, Iterable, Set
from functools import partial
from typing import Any

import torch
from typing_extensions import override

from syncverify.sim.recording.raw_accesses import RawRegion
from syncverify.sim.recording.storages import StorageTable
from syncverify.trace.source_lines import NoLine
from syncverify.trace.stacks import RawFrames, subject_frames

# Takes the name of the function that reads, the bytes, and the line that called the function.
NoteRead = Callable[[str, RawRegion, RawFrames | NoLine], None]


class HostReader:
    """Notes which bytes of storages the host reads.

    `on_host` has the numbers of storages whose memory is the host's. `note` takes a read of
    that, `note_copy` a copy of memory of the device for which the host waits.
    """

    def __init__(
        self,
        storages: StorageTable,
        on_host: Set[int],
        note: NoteRead,
        note_copy: NoteRead | None = None,
    ) -> None:
        self._storages = storages
        self._on_host = on_host
        self._note = note
        self._note_copy = note_copy
        # By number of the storage, or by an object of a view's own: what the reader holds while
        # bytes are lent, and the read.
        self._lent: dict[object, tuple[object, tuple[Any, ...]]] = {}

    def read_bytes(
        self, storage: torch.UntypedStorage, function: str, *, of_device: bool
    ) -> None:
        """Note that a function reads all bytes of a storage.

        With `of_device`, the function copies memory of the device to the host first.
        """
        known = self._storages.known(storage)
        if known is None:
            return
        region = RawRegion(known, 0, (storage.nbytes(),), (1,), 1)
        if known.number in self._on_host:
            self._note(function, region, self._line())
        elif of_device and known.is_on_device and self._note_copy is not None:
            self._note_copy(function, region, self._line())

    def read(self, tensors: Iterable[torch.Tensor], function: str) -> None:
        """Note that a function reads memory of the host among tensors."""
        for tensor in tensors:
            if (region := self._region(tensor)) is not None:
                self._note(function, region, self._line())

    def lend(self, tensor: torch.Tensor, view: object, function: str) -> None:
        """Note that a view shares the bytes of a tensor, until the view goes away.

        None is a view that only the storage outlives. `function` made the view.
        """
        if (region := self._region(tensor)) is None:
            return
        key = region.storage.number if view is None else object()
        held = None if view is None else weakref.ref(view, lambda _: self.end(key))
        self._lent[key] = held, (function, region, self._line())

    def _region(self, tensor: torch.Tensor) -> RawRegion | None:
        """Return the bytes of a tensor; None where they are not known to be the host's."""
        try:
            known = self._storages.known(tensor.untyped_storage())
        except NotImplementedError:  # sparse, and other layouts without a place
            return None
        if known is None or known.number not in self._on_host:
            return None
        offset, strides = int(tensor.storage_offset()), tensor.stride()
        return RawRegion(known, offset, tensor.shape, strides, tensor.itemsize)

    def end(self, key: object) -> None:
        """Note the read of a view that goes away, or of a storage by its number."""
        _, read = self._lent.pop(key, (None, None))
        if read is not None:
            self._note(*read)

    def close(self) -> None:
        """Note the reads of all views that are left."""
        for key in tuple(self._lent):
            self.end(key)

    def _line(self) -> RawFrames | NoLine:
        return subject_frames() or NoLine.UNKNOWN


class ThreadReader(HostReader):
    """Notes reads and waits of a thread, which count once the rank has waited for the thread."""

    def __init__(
        self, storages: StorageTable, on_host: Set[int], note: NoteRead
    ) -> None:
        # Reads of the thread, and waits of the host before its later reads.
        self.kept: list[Callable[[], None]] = []
        super().__init__(
            storages, on_host, lambda *read: self.kept.append(partial(note, *read))
        )
        self._started_at = super()._line()

    def arrive(self) -> None:
        """Count the reads and waits so far."""
        kept, self.kept = self.kept, []
        for note in kept:
            note()

    @override
    def _line(self) -> RawFrames | NoLine:
        return subject_frames() or self._started_at
