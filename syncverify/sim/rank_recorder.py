"""Write the trace of one simulated rank: its streams, accesses and lifetimes."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import AbstractContextManager, contextmanager

import torch
from typing_extensions import override

from syncverify.recorder import Recorder
from syncverify.sim.access_recording import AccessRecording
from syncverify.sim.operators import Effects
from syncverify.sim.raw_accesses import (
    RawAccess,
    RawFree,
    Touch,
    merged,
    touch,
    without_order,
)
from syncverify.sim.storages import Storage, StorageTable
from syncverify.sim.streams import RankStreams
from syncverify.sourcelines import innermost_subject_line
from syncverify.trace import CollectiveLaunch


class RankRecorder(Recorder):
    """Collects the events of one simulated rank.

    Args:
        records_accesses: False saves the time, where a rank has only one stream.

    Attributes:
        streams: Of the rank.
        storages: Of the rank.
    """

    def __init__(self, *, records_accesses: bool = True) -> None:
        super().__init__()
        self.streams = RankStreams(self)
        self.storages = self._numbers = StorageTable(self._note_freed)
        self._records_accesses = records_accesses
        self._raw: list[RawAccess | RawFree] = []
        self._mode = AccessRecording(
            self._note_operator,
            on_wrapped=self._note_wrapped,
            num_events=lambda: len(self.events),
        )
        self._communicators: dict[str, str] = {}

    @property
    def lacks_accesses(self) -> bool:
        """Whether it should have recorded accesses and has not."""
        return not (self._records_accesses or self.streams.is_alone)

    def finish(self) -> None:
        """End the recording, and turn what was noted into events."""
        self.storages.close()
        self.streams.in_flight.clear()
        raw, self._raw = self._raw, []
        if self.streams.is_alone:
            self.events[:] = merged(without_order(self.events), ())
        else:
            self.events[:] = merged(self.events, raw)

    @override
    def current_stream(self) -> str:
        return self.streams.current().name

    @override
    def recording_accesses(self) -> AbstractContextManager[None]:
        return self._switched(serves_subject=True)

    @override
    def not_recording_accesses(self) -> AbstractContextManager[None]:
        return self._switched(serves_subject=False)

    @contextmanager
    def _switched(self, *, serves_subject: bool) -> Iterator[None]:
        before = self.streams.serves_subject
        self._switch(serves_subject)
        try:
            yield
        finally:
            self._switch(before)

    def _switch(self, serves_subject: bool) -> None:  # noqa: FBT001  # the only argument
        self.streams.serves_subject = serves_subject
        self._mode.switch(on=serves_subject and self._records_accesses)

    @override
    @contextmanager
    def computing_loss(self, parameters: Iterable[torch.Tensor]) -> Iterator[None]:
        with self.not_recording_accesses():
            held = self.streams.engine.tag_new_leaves(parameters)
            yield
            del held

    @override
    def read(self, operator: str, tensors: Iterable[torch.Tensor]) -> None:
        if self._records_accesses:
            stream = self.current_stream()
            reads = self._touches(tensors, stream)
            self._raw.append(
                RawAccess(
                    len(self.events), self.moment, stream, operator, reads, (), operator
                )
            )

    @override
    def communication_stream(
        self, communicator: str, ranks: tuple[int, ...], *, is_async: bool
    ) -> str:
        if not is_async:
            return self.current_stream()
        if communicator not in self._communicators:
            name = f"nccl stream of ranks {list(ranks)}"
            twins = [n for n in self._communicators.values() if n.startswith(name)]
            label = f"{name}, group {len(twins) + 1}" if twins else name
            self._communicators[communicator] = self.streams.internal(label)
        return self._communicators[communicator]

    @override
    def note_communicated(
        self, tensors: Iterable[torch.Tensor], stream: str, current: str
    ) -> None:
        for tensor in tensors:
            storage = self.storages.of(tensor, current)
            storage.touch(stream)
            storage.is_on_device = True

    @override
    def wait(self, launched: CollectiveLaunch) -> None:
        super().wait(launched)
        if launched.operation == "barrier":  # NCCL's blocks the host
            self.streams.wait_on_host(self.streams.mark(self.streams.current()))

    def wait_for_copy_of(self, tensor: torch.Tensor) -> None:
        """Let the host wait for the current stream, if it would for a tensor's values."""
        if self.storages.of(tensor, self.current_stream()).is_on_device:
            self.streams.wait_on_host(self.streams.mark(self.streams.current()))

    def record_stream(self, tensor: torch.Tensor, stream: str) -> None:
        """Note that memory must not go back before a stream is done with it."""
        self.storages.of(tensor, self.current_stream()).record_stream(stream)

    def _note_wrapped(self, arguments: Iterable[object]) -> None:
        if self.streams.current() is not self.streams.default:
            tensors = (a for a in arguments if isinstance(a, torch.Tensor))
            self._note_leaves(tensors)

    def _note_leaves(self, used: Iterable[torch.Tensor]) -> None:
        if torch.is_grad_enabled():
            self.streams.engine.note_leaves(used)

    def _note_operator(
        self,
        position: int,
        effects: Effects,
        reads: list[torch.Tensor],
        writes: list[torch.Tensor],
        results: list[torch.Tensor],
    ) -> None:
        current = self.streams.current()
        stream = current.name
        if current is not self.streams.default:
            self._note_leaves(reads)
        read = self._touches(reads, stream)
        written = self._touches(writes, stream)
        known = self.storages.num_seen
        filled = self._touches(results, stream, since=known)
        if effects.fills:
            written += filled
        if any(storage.is_on_device for storage, *_ in read):
            for storage, *_ in written:
                storage.is_on_device = True
        elif effects.waits_on_host:
            return  # the host reads what it has anyway
        if read or written:
            line = innermost_subject_line() or "autograd"
            self._raw.append(
                RawAccess(
                    position, self.moment, stream, effects.name, read, written, line
                )
            )
        if effects.waits_on_host:
            self.streams.wait_on_host(self.streams.mark(current))

    def _touches(
        self, tensors: Iterable[torch.Tensor], stream: str, since: int = 0
    ) -> list[Touch]:
        """Write down where tensors lie, as far as their storages are new `since`."""
        found = []
        for tensor in tensors:
            if tensor.is_meta or tensor.layout is not torch.strided:
                continue  # no memory, or none that has a place
            storage = self.storages.of(tensor, stream)
            if storage.stream != stream:
                storage.is_shared = True
            if storage.number >= since:
                found.append(touch(storage, tensor))
        return found

    def _note_freed(self, storage: Storage) -> None:
        self._raw.append(RawFree(len(self.events), self.moment, storage))
