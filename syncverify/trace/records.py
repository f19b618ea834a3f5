"""The trace: ordered records of the actions of one rank.

Traces and observations are the only way from running to judging: a backend writes them, and
properties read them. Each record has the `Moment` of its call, and all but `HostWait` name a
stream: the current one, or the one that the work is queued on. `source` is the line of the subject
that made the call, or the origin of work without such a line; `callers` are the lines that led to
it, the nearest first.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import NamedTuple

from typing_extensions import override

from syncverify.trace import operations
from syncverify.trace.regions import MemoryRegion, ParameterSlot
from syncverify.trace.source_lines import NoLine, Origin, SourceLine

# Phases of a synchronizer: "bind", "backward", "wait", "zero_grad", "unbind", "after_unbind".
# Records of an announcement have the phase "zero_grad". An exception in an announcement has the
# name of the method, "set_required_accumulations". Phases of any other program: the names of its
# regions, and "" outside of all regions.
Phase = str

DEFAULT_STREAM = "default"
HOST = "host"  # the stream of operators that the host runs itself
_MAX_RANKS_NAMED = 16


class CollectiveKey(NamedTuple):
    """One collective of a communicator; equal on all ranks that take part."""

    communicator: str
    ranks: tuple[int, ...]  # global, in group order
    sequence: int  # position among the communicator's collectives, from 0


class MatchedArguments(NamedTuple):
    """The arguments of a collective that must be equal on all ranks."""

    operation: str  # `message` for a send and its receive
    reduce_op: str
    dtype: str
    numel: int | None  # None where ranks may differ
    root: int | None


@dataclass(frozen=True, slots=True)
class Moment:
    """Point of the training run at which a record was made; steps count from 0."""

    phase: Phase  # call of the rank program, or region of a program, that was under way
    step: int
    micro_batch: int | None = None  # of the step, from 0; None outside of a backward

    @override
    def __str__(self) -> str:
        """Say it in words; "" outside of all regions of a program."""
        if not self.phase:
            return ""
        if self.micro_batch is None:
            return f"step {self.step}, {self.phase}"
        return f"step {self.step}, micro-batch {self.micro_batch}, {self.phase}"


@dataclass(frozen=True, slots=True)
class SubjectCall:
    """The rank program is about to call a method of the subject."""

    moment: Moment
    stream: str = DEFAULT_STREAM


@dataclass(frozen=True, slots=True)
class SubjectReturn:
    """A call of a method of the subject has returned."""

    moment: Moment
    stream: str = DEFAULT_STREAM
    # Memory of each local gradient after the call, by parameter name.
    gradients: Mapping[str, MemoryRegion] = field(
        default_factory=dict, repr=False, compare=False
    )
    # Names of the parameters whose own hooks all run before accumulation.
    hooked_early: frozenset[str] = field(default=frozenset(), repr=False, compare=False)


@dataclass(frozen=True, slots=True)
class _OnStream:
    """A record that names a stream."""

    moment: Moment
    stream: str


@dataclass(frozen=True, slots=True)
class Access(_OnStream):
    """An operator that reads or writes memory was queued."""

    operator: str  # such as `aten.add_.Tensor`
    reads: tuple[MemoryRegion, ...]
    writes: tuple[MemoryRegion, ...]
    source: Origin
    callers: tuple[SourceLine, ...] = field(default=(), repr=False, compare=False)

    @property
    def runs_on(self) -> str:
        """Return the stream that the operator runs on."""
        return self.stream


@dataclass(frozen=True, slots=True)
class StreamCreated(_OnStream):
    """A stream was created."""

    source: Origin


@dataclass(frozen=True, slots=True)
class Mark(_OnStream):
    """A CUDA event was recorded: a mark in a stream, after all work queued so far."""

    mark: int  # unique on its rank
    source: Origin


@dataclass(frozen=True, slots=True)
class StreamWait(_OnStream):
    """A stream waits for a mark: work that is queued on it from now on runs after the mark."""

    mark: int
    source: Origin


@dataclass(frozen=True, slots=True)
class HostWait:
    """The host waited until the device had passed a mark.

    The subject asked for it by `synchronize` or `query`, or the host waited by itself, such as to
    read a value of the device.
    """

    moment: Moment
    mark: int
    source: Origin
    is_asked_for: bool = field(default=False, repr=False, compare=False)


@dataclass(frozen=True, slots=True)
class StorageFreed:
    """The last reference to a storage was dropped, and its memory returned to a pool.

    Queued work on some streams delays the reuse of the memory, because the subject or autograd
    called `Tensor.record_stream`.
    """

    moment: Moment
    storage: int  # its number
    stream: str  # of the pool that owns the memory
    recorded_streams: tuple[str, ...] = ()  # by the subject
    num_bytes: int = 0
    engine_streams: tuple[str, ...] = ()  # by autograd
    # Line of the subject's call for each of `recorded_streams`.
    recorded_at: tuple[Origin, ...] = field(default=(), repr=False, compare=False)
    # Line that allocated the memory; `UNKNOWN` for memory of before the subject.
    made_at: Origin = field(default=NoLine.UNKNOWN, repr=False, compare=False)


@dataclass(frozen=True, slots=True)
class CollectiveLaunch:
    """A collective was issued, or a message from rank to rank."""

    moment: Moment
    ranks: tuple[int, ...]  # global, in group order; of a message, sender and receiver
    # Position among this rank's collectives on the communicator, from 0; messages are counted by
    # sender and receiver.
    sequence: int
    operation: str  # torch's name, such as `all_reduce`
    reduce_op: str  # `SUM`, `AVG`, ...; empty where nothing is reduced
    dtype: str  # of the elements, without `torch.`
    numel: int  # elements that this rank contributes
    regions: tuple[MemoryRegion, ...]  # memory that this rank contributes
    parameters: tuple[str, ...]  # those with gradients in `regions`
    source: Origin
    stream: str = DEFAULT_STREAM  # current stream of the call
    # NCCL keeps one stream for each communicator, which first waits for `stream`; a synchronous
    # call runs on `stream` itself, since torch 2.8.
    communication_stream: str = DEFAULT_STREAM
    written: tuple[MemoryRegion, ...] = ()  # memory that receives results
    communicator: str = ""  # a name, equal on its ranks, unlike that of others
    root: int | None = None  # a global rank
    # Places of the gradients of `parameters` in the contribution. A gradient that was first
    # copied to other memory is not known by name.
    slots: tuple[ParameterSlot, ...] = ()
    is_batched: bool | None = None  # of a message; None if unknown
    # Bytes of `regions`, gaps included, at the time of the call; empty where they are on a
    # device, or too many.
    contents: tuple[bytes, ...] = field(default=(), repr=False, compare=False)
    # Lines of the subject that led to `source`, the nearest first.
    callers: tuple[SourceLine, ...] = field(default=(), repr=False, compare=False)
    # Whether a tensor hook, which runs before accumulation, issued it.
    in_tensor_hook: bool = field(default=False, repr=False, compare=False)
    # Whether a tensor is waited for, and no handle: a functional collective.
    is_functional: bool = field(default=False, repr=False, compare=False)
    # Whether torch's own code issued it, and has its handle.
    is_of_torch: bool = field(default=False, repr=False, compare=False)
    # Name of the data in each of `regions`, or of `written` if there are none, alike on ranks
    # that run the same lines; "" for unknown data. Empty if data was not named.
    data_names: tuple[str, ...] = field(default=(), repr=False, compare=False)
    tag: int = field(default=0, repr=False)  # of a message
    # What the program calls the group; "" if nothing.
    group_name: str = field(default="", repr=False, compare=False)

    @property
    def key(self) -> CollectiveKey:
        """Return the key that the collective has on all of its ranks."""
        return CollectiveKey(self.communicator, self.ranks, self.sequence)

    @property
    def group(self) -> str:
        """Return the group in words."""
        name = repr(self.group_name) if self.group_name else self.communicator
        return f"group {name} of ranks {_shortened(self.ranks)}"

    @property
    def reads(self) -> tuple[MemoryRegion, ...]:
        """Return the memory that is read: `regions`, as an Access names it."""
        return self.regions

    @property
    def writes(self) -> tuple[MemoryRegion, ...]:
        """Return the memory that is written: `written`, as an Access names it."""
        return self.written

    @property
    def runs_on(self) -> str:
        """Return the stream that the collective runs on."""
        return self.communication_stream

    @property
    def reduces(self) -> bool:
        """Tell whether values of several ranks are combined; over one rank nothing is."""
        return self.operation in operations.REDUCING_OPERATIONS and len(self.ranks) > 1

    @property
    def signature(self) -> tuple[str, str, str, int]:
        """Return operation, reduction, dtype and size."""
        return self.operation, self.reduce_op, self.dtype, self.numel

    @property
    def matched_arguments(self) -> MatchedArguments:
        """Return the arguments that must be equal on all ranks of the communicator."""
        is_message = self.operation in operations.POINT_TO_POINT
        is_uneven = self.operation in operations.UNEVEN_OPERATIONS
        return MatchedArguments(
            operation="message" if is_message else self.operation,
            reduce_op=self.reduce_op,
            dtype=self.dtype,
            numel=None if is_uneven else self.numel,
            root=self.root,
        )

    @override
    def __str__(self) -> str:
        reduce_op = f" {self.reduce_op}" if self.reduce_op else ""
        root = "" if self.root is None else f" with root {self.root}"
        # A barrier has no dtype.
        of = f" of {self.numel} x {self.dtype}" if self.dtype else ""
        return (
            f"{self.operation}{reduce_op}{of}{root} over ranks "
            f"{_shortened(self.ranks)}, at {self.source}"
        )


@dataclass(frozen=True, slots=True)
class CollectiveWait:
    """A stream or the host waits for a collective; its result may be read after the wait.

    With NCCL, only work that is queued on this stream from now on runs after the collective. gloo
    blocks the host instead.
    """

    moment: Moment
    ranks: tuple[int, ...]
    sequence: int
    stream: str = DEFAULT_STREAM
    communicator: str = ""
    source: Origin = field(default=NoLine.UNKNOWN, repr=False, compare=False)

    @property
    def key(self) -> CollectiveKey:
        """Return the key of the collective that was waited for."""
        return CollectiveKey(self.communicator, self.ranks, self.sequence)


@dataclass(frozen=True, slots=True)
class UnwrittenRead(_OnStream):
    """Memory was read before it was written, and the value came to light at this moment."""

    operator: str  # or the collective that read the memory
    made_at: Origin
    source: Origin  # the line that read it


@dataclass(frozen=True, slots=True)
class ClockCompared(_OnStream):
    """The program compared a time that a clock of the host gave at this moment."""

    source: Origin


@dataclass(frozen=True, slots=True)
class GroupMade(_OnStream):
    """The rank made a group of ranks by a call that all ranks of the world have to make."""

    # Global, in group order; the rank itself may be none of them.
    ranks: tuple[int, ...]
    source: Origin
    callers: tuple[SourceLine, ...] = field(default=(), repr=False, compare=False)

    @override
    def __str__(self) -> str:
        return f"new_group() of ranks {_shortened(self.ranks)}, at {self.source}"


@dataclass(frozen=True, slots=True)
class ShardGiven(_OnStream):
    """The rank gave its shard of a tensor, but not the shape of the whole."""

    shape: tuple[int, ...]  # of the shard
    ranks: tuple[int, ...]  # that have the shards, global, in group order
    source: Origin


TraceRecord = (
    SubjectCall
    | SubjectReturn
    | CollectiveLaunch
    | CollectiveWait
    | Access
    | StreamCreated
    | Mark
    | StreamWait
    | HostWait
    | StorageFreed
    | UnwrittenRead
    | ClockCompared
    | GroupMade
    | ShardGiven
)
# A record of memory that is used: its `reads` and `writes`.
MemoryUse = Access | CollectiveLaunch


def _shortened(ranks: tuple[int, ...]) -> str:
    """List the ranks of a communicator, or the first and last of thousands."""
    if len(ranks) <= _MAX_RANKS_NAMED:
        return str(list(ranks))
    return f"[{ranks[0]}, {ranks[1]}, ..., {ranks[-1]}] ({len(ranks)})"
