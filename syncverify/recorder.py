"""Write the trace of one rank."""

from __future__ import annotations

import ctypes
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext

import torch
from torch.multiprocessing.reductions import StorageWeakRef

from syncverify.carried_modes import carried_modes
from syncverify.memory import MemoryRegion, tensor_region
from syncverify.slots import ParameterSlot, find_slots
from syncverify.trace import (
    DEFAULT_STREAM,
    POINT_TO_POINT,
    CollectiveLaunch,
    CollectiveWait,
    Event,
    LifecycleCall,
    LifecycleReturn,
    Moment,
)

# Whole numbers are played with few elements; real modules are judged by other means.
_MAX_CONTENT_BYTES = 2**16
_PLAIN_TENSORS = (torch.Tensor, torch.nn.Parameter)


class StorageNumbers:
    """Number storages in order of appearance, so that traces compare across runs.

    A storage that was freed loses its number, even if its address is used again.
    """

    def __init__(self) -> None:
        self._references: dict[int, tuple[StorageWeakRef, int]] = {}
        self._next_number = 0

    def region(self, tensor: torch.Tensor) -> MemoryRegion:
        """Return the bytes that a tensor consists of."""
        return tensor_region(tensor, self._number(tensor))

    def _number(self, tensor: torch.Tensor) -> int:
        reference = StorageWeakRef(tensor.untyped_storage())
        known = self._references.get(reference.cdata)
        if known is not None and not known[0].expired():
            return known[1]
        number, self._next_number = self._next_number, self._next_number + 1
        self._references[reference.cdata] = (reference, number)
        return number


class Recorder:
    """Collects the events of one rank.

    A backend with streams of its own overrides what this class says about streams and
    accesses: here there is one stream, and accesses are not recorded.

    Attributes:
        events: What was recorded, in host order.
        moment: Stamp of the next event; the rank program moves it on.
    """

    def __init__(self) -> None:
        self.events: list[Event] = []
        self.moment = Moment("bind", 0)
        self._numbers = StorageNumbers()
        self._sequences: dict[tuple[str, tuple[int, ...], bool], int] = {}
        self._gradients: Callable[[], Mapping[str, torch.Tensor]] = dict

    def watch(self, gradients: Callable[[], Mapping[str, torch.Tensor]]) -> None:
        """Learn how to find the current local gradients, by parameter name."""
        self._gradients = gradients

    @contextmanager
    def calling(self, moment: Moment) -> Iterator[None]:
        """Record a call of the subject, and what it does meanwhile.

        Args:
            moment: Which call.
        """
        self.enter(moment)
        with self.recording_accesses():
            yield
        returned = LifecycleReturn(moment, self.current_stream(), self._places())
        self.events.append(returned)

    def enter(self, moment: Moment) -> None:
        """Note that the rank program is about to call the subject."""
        self.moment = moment
        self.events.append(LifecycleCall(moment, self.current_stream()))

    def current_stream(self) -> str:
        """Name the stream on which the calling thread queues work."""
        return DEFAULT_STREAM

    def recording_accesses(self) -> AbstractContextManager[None]:
        """Record accesses for the length of a block."""
        return nullcontext()

    def not_recording_accesses(self) -> AbstractContextManager[None]:
        """Do work of the harness for the length of a block within the subject's."""
        return nullcontext()

    def read(self, operator: str, tensors: Iterable[torch.Tensor]) -> None:
        """Record that whoever trains reads tensors on the current stream.

        Args:
            operator: What to call it.
            tensors: Local ones.
        """

    def computing_loss(
        self, parameters: Iterable[torch.Tensor]
    ) -> AbstractContextManager[None]:
        """Let the harness compute a loss for the length of a block.

        Args:
            parameters: Those that it may use.

        Returns:
            What to enter.
        """
        return nullcontext()

    def as_rank(self) -> Callable[[], AbstractContextManager[None]]:
        """Return what makes another thread one of this rank's for the length of a block.

        Called on a thread of this rank. Here a rank is a process, and what is recorded is
        all that a thread of it could lack.
        """
        return carried_modes()

    def communication_stream(
        self, communicator: str, ranks: tuple[int, ...], *, is_async: bool
    ) -> str:
        """Name the stream on which a communicator runs a collective.

        Args:
            communicator: Name that its ranks share.
            ranks: Its global ranks.
            is_async: Whether the caller asked for a handle to wait for.

        Returns:
            The name.
        """
        return DEFAULT_STREAM

    def note_communicated(
        self, tensors: Iterable[torch.Tensor], stream: str, current: str
    ) -> None:
        """Note that a collective on a stream uses tensors, issued on another."""

    def launch(
        self,
        operation: str,
        tensors: list[torch.Tensor],
        *,
        ranks: tuple[int, ...],
        reduce_op: str,
        source: str,
        communicator: str = "",
        root: int | None = None,
        written: Iterable[torch.Tensor] = (),
        communication_stream: str = DEFAULT_STREAM,
        is_batched: bool | None = None,
    ) -> CollectiveLaunch:
        """Record a collective as it is issued.

        Args:
            operation: torch's name of it.
            tensors: What this rank contributes.
            ranks: Global ranks of the communicator.
            reduce_op: Name of the reduction, or an empty string.
            source: The line that issued it.
            communicator: Name that its ranks share.
            root: Global rank of the root, if there is one.
            written: What receives results.
            communication_stream: Stream that it runs on.
            is_batched: Of a message, whether it is one of a batch.

        Returns:
            The record.
        """
        regions = tuple(self._numbers.region(tensor) for tensor in tensors)
        if operation in POINT_TO_POINT:
            # Of a communicator of two ranks, the same two may meet in a collective.
            communicator = f"{communicator}, messages"
        # A rank that sends to itself is twice in one meeting.
        counted = (communicator, ranks, operation == "recv")
        sequence = self._sequences.get(counted, 0)
        self._sequences[counted] = sequence + 1
        slots = self._slots(regions)
        current, written = self.current_stream(), list(written)
        self.note_communicated((*tensors, *written), communication_stream, current)
        event = CollectiveLaunch(
            moment=self.moment,
            ranks=ranks,
            sequence=sequence,
            operation=operation,
            reduce_op=reduce_op,
            dtype=str(tensors[0].dtype).removeprefix("torch.") if tensors else "",
            numel=sum(tensor.numel() for tensor in tensors),
            regions=regions,
            parameters=tuple(dict.fromkeys(slot.parameter for slot in slots)),
            source=source,
            stream=current,
            communication_stream=communication_stream,
            communicator=communicator,
            root=root,
            slots=slots,
            written=tuple(self._numbers.region(tensor) for tensor in written),
            is_batched=is_batched,
            contents=_contents(tensors, regions),
        )
        self.events.append(event)
        return event

    def start(self, launched: CollectiveLaunch, run: Callable[[], None]) -> None:
        """Let a collective take its inputs: at once, unless somebody wants it late.

        Args:
            launched: Which one; `launch` has just returned it.
            run: Takes them.
        """
        run()

    def end(self, launched: CollectiveLaunch, run: Callable[[], None]) -> None:
        """Let a collective that is waited for write its results, likewise.

        Args:
            launched: Which one.
            run: Waits for other ranks and writes them.
        """
        run()

    def wait(self, launched: CollectiveLaunch) -> None:
        """Record that the current stream, or the host, waits for a collective."""
        self.events.append(
            CollectiveWait(
                self.moment,
                launched.ranks,
                launched.sequence,
                self.current_stream(),
                launched.communicator,
            )
        )

    def _slots(self, regions: tuple[MemoryRegion, ...]) -> tuple[ParameterSlot, ...]:
        return find_slots(self._places(), regions)

    def _places(self) -> dict[str, MemoryRegion]:
        gradients = self._gradients().items()
        return {name: self._numbers.region(gradient) for name, gradient in gradients}


def _contents(
    tensors: Sequence[torch.Tensor], regions: Sequence[MemoryRegion]
) -> tuple[bytes, ...]:
    """Read what is sent, without an operator that somebody else would see."""
    num_bytes = sum(region.end_byte - region.start_byte for region in regions)
    if num_bytes > _MAX_CONTENT_BYTES or not all(map(_is_readable, tensors, regions)):
        return ()
    return tuple(
        ctypes.string_at(
            tensor.untyped_storage().data_ptr() + region.start_byte,
            region.end_byte - region.start_byte,
        )
        for tensor, region in zip(tensors, regions, strict=True)
    )


def _is_readable(tensor: torch.Tensor, region: MemoryRegion) -> bool:
    """Tell whether the bytes are really there: wrappers and fakes only look like tensors."""
    if type(tensor) not in _PLAIN_TENSORS or tensor.layout is not torch.strided:
        return False
    storage = tensor.untyped_storage()
    return storage.device.type == "cpu" and storage.nbytes() >= region.end_byte
