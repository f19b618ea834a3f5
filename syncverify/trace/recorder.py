"""The recorder, which writes the trace of one rank.

A recorder must not disturb the run. It queues no operator that the subject or a dispatch mode
could see, waits for no stream, and keeps no storage alive.
"""

import ctypes
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from typing import Any

import torch
from torch.multiprocessing.reductions import StorageWeakRef

from syncverify.trace import records
from syncverify.trace.dispatch_modes import carry_dispatch_modes
from syncverify.trace.engine_log import EnginePass
from syncverify.trace.operations import POINT_TO_POINT
from syncverify.trace.regions import MemoryRegion, find_slots, has_memory, tensor_region
from syncverify.trace.source_lines import NoLine
from syncverify.trace.stacks import calling_frames, calling_line, is_issued_by_torch
from syncverify.trace.tensor_hooks import hooked_early, is_in_tensor_hook

# Enough for scenarios of whole numbers, which have few elements. The properties that read
# contents do not judge real modules.
_MAX_CONTENT_BYTES = 2**16
_PLAIN_TENSORS = (torch.Tensor, torch.nn.Parameter)


class StorageNumbers:
    """Numbers storages in order of appearance, so that traces of two runs compare.

    Addresses differ between runs. References are weak, so that the recorder does not delay
    the free of a storage. A freed storage loses its number: a new storage at the same
    address is another storage, and gets another number.
    """

    def __init__(self) -> None:
        self._references: dict[int, tuple[StorageWeakRef, int]] = {}
        self._next_number = 0

    def region(self, tensor: torch.Tensor) -> MemoryRegion:
        """Return the bytes that a tensor consists of."""
        return tensor_region(tensor, self._number(tensor))

    def _number(self, tensor: torch.Tensor) -> int:
        reference = StorageWeakRef(tensor.untyped_storage())
        earlier, number = self._references.get(reference.cdata, (None, 0))
        if earlier is None or earlier.expired():
            number, self._next_number = self._next_number, self._next_number + 1
            self._references[reference.cdata] = (reference, number)
        return number


class Recorder:
    """Collects the trace records of one rank.

    This class knows one stream and records no accesses. A backend with several streams
    overrides the methods about streams and accesses.
    """

    def __init__(self) -> None:
        self.trace: list[records.TraceRecord] = []  # in host order
        # The backward passes, complete when the rank has ended; empty if nothing watches them.
        self.engine: list[EnginePass] = []
        # Of the next record; the rank program advances it.
        self.moment = records.Moment("bind", 0)
        self._numbers = StorageNumbers()
        self._sequences: dict[tuple[str, tuple[int, ...], bool], int] = {}
        self._gradients: Callable[[], Mapping[str, torch.Tensor]] = dict
        self.parameters: Mapping[str, torch.Tensor] = {}  # of the training program

    def watch(
        self,
        gradients: Callable[[], Mapping[str, torch.Tensor]],
        parameters: Mapping[str, torch.Tensor] | None = None,
    ) -> None:
        """Set the function that returns the local gradients by name, and the parameters."""
        self._gradients = gradients
        self.parameters = dict(parameters or {})

    @contextmanager
    def calling(self, moment: records.Moment) -> Iterator[None]:
        """Record a call of the subject, and its accesses for the length of a block."""
        self.enter(moment)
        with self.recording_accesses():
            yield
        returned = records.SubjectReturn(
            moment,
            self.current_stream(),
            self._gradient_regions(),
            hooked_early(self.parameters),
        )
        self.trace.append(returned)

    def enter(self, moment: records.Moment) -> None:
        """Record that the rank program is about to call the subject."""
        self.moment = moment
        self.trace.append(records.SubjectCall(moment, self.current_stream()))

    def current_stream(self) -> str:
        """Name the stream on which the calling thread queues work."""
        return records.DEFAULT_STREAM

    def recording_accesses(self) -> AbstractContextManager[None]:
        """Record accesses for the length of a block."""
        return nullcontext()

    def not_recording_accesses(self) -> AbstractContextManager[None]:
        """Leave out the harness's own operators, for a block within a call of the subject."""
        return nullcontext()

    def optimizing(self) -> AbstractContextManager[None]:
        """Record accesses of the training program's optimizer, for the length of a block."""
        return nullcontext()

    def read(
        self,
        operator: str,
        tensors: Iterable[torch.Tensor],
        reader: NoLine = NoLine.OPTIMIZER,
    ) -> None:
        """Record that the program reads local tensors, on the current stream or on the host."""

    def computing_loss(
        self, parameters: Iterable[torch.Tensor]
    ) -> AbstractContextManager[None]:
        """Mark a block in which the harness computes a loss that may use some parameters."""
        return nullcontext()

    def as_rank(self) -> Callable[[], AbstractContextManager[None]]:
        """Return a function that makes a context in which another thread is one of this rank.

        The caller is on a thread of this rank, and enters the context on the other thread. Here
        a rank is a process, and another thread lacks only the dispatch modes that record.
        """
        return carry_dispatch_modes()

    def communication_stream(
        self,
        communicator: str,
        ranks: tuple[int, ...],
        *,
        is_async: bool,
        library: str = "nccl",
    ) -> str:
        """Return the name of the stream on which a communicator runs a collective.

        `ranks` are global, in group order. `is_async` says that the caller gets a handle.
        `library` is the name of the communicator's library for reports.
        """
        return records.DEFAULT_STREAM

    def note_communicated(
        self, tensors: Iterable[torch.Tensor], stream: str, current: str
    ) -> None:
        """Note the tensors of a collective that runs on `stream`, issued on `current`."""

    def launch(
        self,
        operation: str,
        tensors: list[torch.Tensor],
        *,
        ranks: tuple[int, ...],
        communicator: str = "",
        written: Iterable[torch.Tensor] = (),
        communication_stream: str = records.DEFAULT_STREAM,
        tag: int = 0,
        is_told_by_tag: bool = False,
        meets_on_host: bool = False,
        **fields: Any,
    ) -> records.CollectiveLaunch:
        """Return the record of a collective, which the calling line issues now.

        `tensors` is this rank's contribution, and `written` receives results. With
        `is_told_by_tag`, messages of another tag are others, as on gloo. With `meets_on_host`,
        hosts alone wait for each other, which a subclass may note. The other arguments are fields
        of `CollectiveLaunch`.
        """
        regions = tuple(self._numbers.region(tensor) for tensor in tensors)
        if operation in POINT_TO_POINT:
            # On a communicator of two ranks, a message and a collective have the same
            # ranks. Counted apart, one cannot be taken for the other.
            communicator = f"{communicator}, messages"
            if is_told_by_tag and tag:
                communicator = f"{communicator} with tag {tag}"
        # A rank that sends to itself is sender and receiver of one message.
        counted = (communicator, ranks, operation == "recv")
        sequence = self._sequences.get(counted, 0)
        self._sequences[counted] = sequence + 1
        slots = find_slots(self._gradient_regions(), regions)
        current, written = self.current_stream(), list(written)
        self.note_communicated((*tensors, *written), communication_stream, current)
        source, callers = calling_frames()
        launched = records.CollectiveLaunch(
            moment=self.moment,
            ranks=ranks,
            sequence=sequence,
            operation=operation,
            dtype=str(tensors[0].dtype).removeprefix("torch.") if tensors else "",
            numel=sum(tensor.numel() for tensor in tensors),
            regions=regions,
            parameters=tuple(dict.fromkeys(slot.parameter for slot in slots)),
            source=source,
            callers=callers,
            stream=current,
            communication_stream=communication_stream,
            communicator=communicator,
            slots=slots,
            written=tuple(self._numbers.region(tensor) for tensor in written),
            tag=tag,
            is_of_torch=is_issued_by_torch(),
            contents=_contents(tensors, regions),
            in_tensor_hook=is_in_tensor_hook(self.parameters.values()),
            **fields,
        )
        self.trace.append(launched)
        return launched

    def start(
        self, launched: records.CollectiveLaunch, run: Callable[[], None]
    ) -> None:
        """Let a collective take its inputs at once, by `run`; a subclass may delay it."""
        run()

    def end(self, launched: records.CollectiveLaunch, run: Callable[[], None]) -> None:
        """Let a collective write its results at the wait; a subclass may delay it.

        `run` waits for the other ranks and writes the results.
        """
        run()

    def delivering(
        self, launched: records.CollectiveLaunch
    ) -> AbstractContextManager[None]:
        """Mark the block that computes and writes the results, when all ranks have arrived."""
        return self.not_recording_accesses()

    def wait(self, launched: records.CollectiveLaunch) -> None:
        """Record that the current stream, or the host, waits for a collective."""
        self.trace.append(
            records.CollectiveWait(
                self.moment,
                launched.ranks,
                launched.sequence,
                self.current_stream(),
                launched.communicator,
                calling_line(),
            )
        )

    def wait_for_barrier(self, launched: records.CollectiveLaunch) -> None:
        """Block the host until the current stream is done, as the wait for NCCL's barrier does."""

    def wait_on_host(self, launched: records.CollectiveLaunch) -> None:
        """Record that the host knows a collective to be complete; here any wait is the host's."""

    def _gradient_regions(self) -> dict[str, MemoryRegion]:
        gradients = self._gradients().items()
        return {name: self._numbers.region(gradient) for name, gradient in gradients}


def _contents(
    tensors: Sequence[torch.Tensor], regions: Sequence[MemoryRegion]
) -> tuple[bytes, ...]:
    """Return the bytes of each region, gaps included; nothing where they cannot be read.

    The bytes are read from memory directly: an operator such as `clone()` would pass the
    dispatch modes, and appear in the trace.
    """
    lengths = [region.end_byte - region.start_byte for region in regions]
    if sum(lengths) > _MAX_CONTENT_BYTES or not all(map(_is_readable, tensors)):
        return ()
    pairs = zip(tensors, lengths, strict=True)
    return tuple(ctypes.string_at(e.data_ptr(), length) for e, length in pairs)


def _is_readable(tensor: torch.Tensor) -> bool:
    """Tell whether host memory holds the bytes, which wrapper and fake tensors lack."""
    if type(tensor) not in _PLAIN_TENSORS or tensor.layout is not torch.strided:
        return False
    return tensor.untyped_storage().device.type == "cpu" and has_memory(tensor)
