"""The trace: ordered records of what one rank did.

Events are the only way from running to judging: a backend writes them, properties read
them. Each is stamped with where in the training run it happened, and with the stream
that it was enqueued on (`default` until a backend has several).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Literal

from typing_extensions import override

from syncverify.memory import MemoryRegion
from syncverify.slots import ParameterSlot

Phase = Literal["bind", "backward", "wait", "zero_grad", "unbind", "after_unbind"]

# A communicator, its ranks, and the position of a meeting among its meetings.
Place = tuple[str, tuple[int, ...], int]

DEFAULT_STREAM = "default"
# Stands for a line where no line of the subject led to an operator.
AUTOGRAD = "autograd"
REDUCING_OPERATIONS = frozenset(
    {"all_reduce", "reduce", "reduce_scatter", "reduce_scatter_single"}
)
# Ranks may contribute different amounts to these: uneven parts, or only the root's.
UNEVEN_OPERATIONS = frozenset(
    {"all_gather", "gather", "scatter", "all_to_all", "all_to_all_single"}
)
# Two ranks of a communicator meet in these, the others never hear of it.
POINT_TO_POINT = frozenset({"send", "recv"})

_MAX_RANKS_NAMED = 16


@dataclass(frozen=True, slots=True)
class Moment:
    """Where in the training run an event happened.

    Attributes:
        phase: Which call of the rank program was under way.
        step: Optimizer step, from 0.
        micro_batch: Micro-batch of the step; None outside of a backward.
    """

    phase: Phase
    step: int
    micro_batch: int | None = None

    @override
    def __str__(self) -> str:
        """Say it in words."""
        if self.micro_batch is None:
            return f"step {self.step}, {self.phase}"
        return f"step {self.step}, micro-batch {self.micro_batch}, {self.phase}"


@dataclass(frozen=True, slots=True)
class LifecycleCall:
    """The rank program is about to call a method of the subject.

    Attributes:
        moment: Which call.
        stream: Stream that is current.
    """

    moment: Moment
    stream: str = DEFAULT_STREAM


@dataclass(frozen=True, slots=True)
class LifecycleReturn:
    """The call returned.

    Attributes:
        moment: Which call.
        stream: Stream that is current.
        gradients: Where the local gradients lie by then, by parameter name.
    """

    moment: Moment
    stream: str = DEFAULT_STREAM
    gradients: Mapping[str, MemoryRegion] = field(
        default_factory=dict, repr=False, compare=False
    )


@dataclass(frozen=True, slots=True)
class Access:
    """An operator was queued that reads or writes memory.

    Attributes:
        moment: When.
        stream: Stream that it was queued on.
        operator: Name of the operator, such as `aten.add_.Tensor`.
        reads: Memory that it reads.
        writes: Memory that it writes.
        source: The line that asked for it.
    """

    moment: Moment
    stream: str
    operator: str
    reads: tuple[MemoryRegion, ...]
    writes: tuple[MemoryRegion, ...]
    source: str


@dataclass(frozen=True, slots=True)
class StreamCreated:
    """A stream was made.

    Attributes:
        moment: When.
        stream: Its name.
        source: The line that asked for it.
    """

    moment: Moment
    stream: str
    source: str


@dataclass(frozen=True, slots=True)
class Mark:
    """An event was recorded: a mark in a stream, after all that it holds by now.

    Attributes:
        moment: When.
        stream: Stream that holds the mark.
        mark: Number of the mark, unique on its rank.
        source: The line that asked for it.
    """

    moment: Moment
    stream: str
    mark: int
    source: str


@dataclass(frozen=True, slots=True)
class StreamWait:
    """Whatever a stream is given from now on runs after a mark.

    Attributes:
        moment: When.
        stream: Stream that waits.
        mark: Number of the mark.
        source: The line that asked for it.
    """

    moment: Moment
    stream: str
    mark: int
    source: str


@dataclass(frozen=True, slots=True)
class HostWait:
    """The host went on only after the device had passed a mark.

    Attributes:
        moment: When.
        mark: Number of the mark.
        source: The line that asked for it.
    """

    moment: Moment
    mark: int
    source: str


@dataclass(frozen=True, slots=True)
class StorageFreed:
    """The last reference to a storage went away, and its memory back to a pool.

    Attributes:
        moment: When.
        storage: Number of the storage.
        stream: Stream whose pool it came from and returns to.
        recorded_streams: Streams for which the subject defers the return, by
            `Tensor.record_stream`.
        num_bytes: How much memory it is.
        engine_streams: Streams for which autograd does, by itself.
    """

    moment: Moment
    storage: int
    stream: str
    recorded_streams: tuple[str, ...] = ()
    num_bytes: int = 0
    engine_streams: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class CollectiveLaunch:
    """A collective was issued.

    Attributes:
        moment: When.
        ranks: Global ranks of the communicator, in group order; of a message from rank
            to rank, the sender and the receiver.
        sequence: Position among this rank's collectives on that communicator; messages
            are counted by sender and receiver.
        operation: torch's name of it, such as `all_reduce`.
        reduce_op: `SUM`, `AVG`, ...; empty where nothing is reduced.
        dtype: Name of the element dtype.
        numel: Elements that this rank contributes.
        regions: Memory that this rank contributes.
        parameters: Names of the parameters whose gradients lie in those regions.
        source: The subject's line that issued it.
        stream: Stream that it was issued on.
        communication_stream: Stream that it runs on: NCCL has one of its own for each
            communicator, which first waits for `stream`; a synchronous call (of torch 2.8
            and later) runs on `stream` itself.
        written: Memory that receives results.
        communicator: Name that its ranks share. Two communicators may have the same ranks.
        root: Global rank of the root; None where there is none.
        slots: Where in the contribution the gradients of `parameters` lie. Gradients that
            were copied elsewhere first are not known by name.
        is_batched: Of a message, whether it is one of a batch; None where the backend
            cannot tell.
        contents: The bytes of `regions`, gaps included, as they were when it was issued;
            empty where they are on a device, or many.
    """

    moment: Moment
    ranks: tuple[int, ...]
    sequence: int
    operation: str
    reduce_op: str
    dtype: str
    numel: int
    regions: tuple[MemoryRegion, ...]
    parameters: tuple[str, ...]
    source: str
    stream: str = DEFAULT_STREAM
    communication_stream: str = DEFAULT_STREAM
    written: tuple[MemoryRegion, ...] = ()
    communicator: str = ""
    root: int | None = None
    slots: tuple[ParameterSlot, ...] = ()
    is_batched: bool | None = None
    contents: tuple[bytes, ...] = field(default=(), repr=False, compare=False)

    @property
    def place(self) -> Place:
        """Return which meeting of ranks this is; all of them call it the same."""
        return (self.communicator, self.ranks, self.sequence)

    @property
    def reduces(self) -> bool:
        """Tell whether values of several ranks are combined; over one rank nothing is."""
        return self.operation in REDUCING_OPERATIONS and len(self.ranks) > 1

    @property
    def signature(self) -> tuple[str, str, str, int]:
        """Return what it is, in short."""
        return (self.operation, self.reduce_op, self.dtype, self.numel)

    @property
    def terms(self) -> tuple[str, str, str, int | None, int | None]:
        """Return what must be equal on all ranks of the communicator."""
        is_message = self.operation in POINT_TO_POINT
        operation = "message" if is_message else self.operation
        numel = None if self.operation in UNEVEN_OPERATIONS else self.numel
        return (operation, self.reduce_op, self.dtype, numel, self.root)

    @override
    def __str__(self) -> str:
        """Say it in words."""
        reduce_op = f" {self.reduce_op}" if self.reduce_op else ""
        root = "" if self.root is None else f" with root {self.root}"
        return (
            f"{self.operation}{reduce_op} of {self.numel} x {self.dtype}{root} over ranks "
            f"{_shortened(self.ranks)}, at {self.source}"
        )


@dataclass(frozen=True, slots=True)
class CollectiveWait:
    """A collective was waited for; its result may be read from here on.

    Attributes:
        moment: When.
        ranks: Global ranks of the communicator.
        sequence: Which of its collectives.
        stream: Stream that waits for it: NCCL orders only what that stream is given
            from now on. gloo blocks the host.
        communicator: Name that its ranks share.
    """

    moment: Moment
    ranks: tuple[int, ...]
    sequence: int
    stream: str = DEFAULT_STREAM
    communicator: str = ""

    @property
    def place(self) -> Place:
        """Return which meeting of ranks was waited for."""
        return (self.communicator, self.ranks, self.sequence)


Event = (
    LifecycleCall
    | LifecycleReturn
    | CollectiveLaunch
    | CollectiveWait
    | Access
    | StreamCreated
    | Mark
    | StreamWait
    | HostWait
    | StorageFreed
)


def _shortened(ranks: tuple[int, ...]) -> str:
    """Name the ranks of a communicator, which may be thousands."""
    if len(ranks) <= _MAX_RANKS_NAMED:
        return str(list(ranks))
    return f"[{ranks[0]}, {ranks[1]}, ..., {ranks[-1]}] ({len(ranks)})"
